"""What users write: one module per API group, and the CustomResourceDefinitions."""
