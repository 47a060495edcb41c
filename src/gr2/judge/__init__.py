"""Graded judgements: kept safely, compared, merged, imported, exported, and derived from clicks."""
