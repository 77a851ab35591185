"""What is done with jobs: each verb makes new ones, claims, settles or looks, in a transaction of its own or a caller's."""
