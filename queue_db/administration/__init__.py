"""What people and programs do with a queue as a whole, and with jobs that they have not claimed."""
