package rules

func (c *comparison) neverHolds() {}

func (c *comparison) defaults() {}
