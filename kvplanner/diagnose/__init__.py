"""Start-up logs read: what an engine measured, how far it came, why it stopped, and the plan that it implies."""
