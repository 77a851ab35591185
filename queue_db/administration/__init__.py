"""What people and programs do with whole queues and with jobs that they have not claimed; and the migrations of the tables."""
