package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"time"
	_ "time/tzdata" // for machines without time zone files
)

// Config is the plugin's configuration in the policy. config.cue is its schema.
type Config struct {
	Timezone string `json:"timezone"`
	From     int    `json:"from"`
	To       int    `json:"to"`
	Freeze   bool   `json:"freeze"`
	Ticket   string `json:"ticket"`
}

//go:embed config.cue
var schema string

func (c *Config) parse() (*time.Location, *regexp.Regexp, error) {
	if c.From < 0 || c.From >= c.To || c.To > 24 {
		return nil, nil, fmt.Errorf("from %d to %d is not a window within a day", c.From, c.To)
	}
	zone, err := time.LoadLocation(c.Timezone)
	if err != nil {
		return nil, nil, err
	}
	ticket, err := regexp.Compile("^(?:" + cmp.Or(c.Ticket, "CHG-[0-9]+") + ")$")
	return zone, ticket, err
}

func (c *Config) refusal() string {
	if c.Freeze {
		return "there is a change freeze: deletes need a ticket"
	}
	return fmt.Sprintf("deletes wait until it is between %d:00 and %d:00 in %s, or need a ticket", c.From, c.To, c.Timezone)
}
