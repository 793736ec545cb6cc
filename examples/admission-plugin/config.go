package main

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// label is where an object says what it is charged to.
const label = "example.com/cost-center"

// object has the fields that the plugin needs of an object. All else stays as it is.
type object struct {
	Metadata struct {
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Data map[string]string `json:"data,omitempty"`
}

// Config is the plugin's configuration in the policy. config.cue is its schema.
type Config struct {
	Teams      map[string]*Team `json:"teams"` // by group of users
	PerReplica int              `json:"perReplica"`
}

// Team is what a group of users may spend.
type Team struct {
	CostCenter string `json:"costCenter"`
	Limit      int    `json:"limit"`
}

//go:embed config.cue
var schema string

func (c *Config) check() error {
	if len(c.Teams) == 0 || c.PerReplica <= 0 {
		return fmt.Errorf("teams and perReplica are needed")
	}
	for group, t := range c.Teams {
		if t == nil || t.CostCenter == "" || t.Limit <= 0 {
			return fmt.Errorf("the team %q needs a cost center and a limit", group)
		}
	}
	return nil
}

// teamOf returns the team of a user: the first one by name of the groups.
func (c *Config) teamOf(groups []string) *Team {
	for _, group := range slices.Sorted(slices.Values(groups)) {
		if t := c.Teams[group]; t != nil {
			return t
		}
	}
	return nil
}

// charged returns the team that a cost center belongs to.
func (c *Config) charged(costCenter string) *Team {
	for _, group := range slices.Sorted(maps.Keys(c.Teams)) {
		if t := c.Teams[group]; t.CostCenter == costCenter {
			return t
		}
	}
	return nil
}

// cost returns what an object costs a month.
func (c *Config) cost(o *object) (int, error) {
	text, ok := o.Data["replicas"]
	if !ok {
		return c.PerReplica, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 1000 {
		return 0, fmt.Errorf("data.replicas: %q is not a number from 0 to 1000", text)
	}
	return n * c.PerReplica, nil
}
