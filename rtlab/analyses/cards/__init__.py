"""What the card of a layer says, and the families that colour it."""
