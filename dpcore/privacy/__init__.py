"""What is protected and what it costs: neighbours, units and sensitivities, and the accounting of privacy loss."""
