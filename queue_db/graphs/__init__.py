"""Graphs of jobs: a job starts when all its parents have left their queues."""

from queue_db.graphs.building import NewGraph, NewNode
from queue_db.graphs.cancellations import NodesCancelled
from queue_db.graphs.job_graph import JobGraph
from queue_db.graphs.model import Graph, GraphState, Layer, Node, NodeState
from queue_db.graphs.registry import Graphs

__all__ = ["Graph", "GraphState", "Graphs", "JobGraph", "Layer", "NewGraph", "NewNode", "Node", "NodeState", "NodesCancelled"]
