"""What stays of a displacement: Disruptions, the ledger of harm, and notices."""
