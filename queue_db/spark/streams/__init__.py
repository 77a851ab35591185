"""Jobs that streams of Spark have claimed and hold until they are written. What is here needs no pyspark."""
