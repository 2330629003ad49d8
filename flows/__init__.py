"""Prefect flows, tasks and artifacts over dpcore."""
