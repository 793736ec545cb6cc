// Package flowapi shows the flows and the priority levels of a server as an API: flow.stele.dev/v1, kinds Flow and
// PriorityLevel. They are what the server does at the moment, and not stored. `kubectl get flows` and `stele top flows`
// print them.
package flowapi

import "stele.dev/stele/schemas"

// The names of the API. It is read only.
const (
	Group       = "flow.stele.dev"
	Version     = "v1"
	FlowPlural  = "flows"
	FlowKind    = "Flow"
	LevelPlural = "prioritylevels"
	LevelKind   = "PriorityLevel"
)

// FlowColumns returns the columns that kubectl prints of flows.
func FlowColumns() []schemas.Column {
	return []schemas.Column{
		{Name: "FlowSchema", Type: "string", JSONPath: ".status.flowSchema"},
		{Name: "Distinguisher", Type: "string", JSONPath: ".status.distinguisher", Description: "The user or the namespace."},
		{Name: "PriorityLevel", Type: "string", JSONPath: ".status.priorityLevel"},
		{Name: "Seats", Type: "integer", JSONPath: ".status.seats"},
		{Name: "Executing", Type: "integer", JSONPath: ".status.executing"},
		{Name: "Waiting", Type: "integer", JSONPath: ".status.waiting"},
		{Name: "Longest Wait", Type: "string", JSONPath: ".status.longestWait"},
		{Name: "Watches", Type: "integer", JSONPath: ".status.watches"},
		{Name: "Refused", Type: "integer", JSONPath: ".status.refused"},
		{Name: "Last Refused", Type: "date", JSONPath: ".status.lastRefused"},
		{Name: "Source", Type: "string", JSONPath: ".status.source", Priority: 1, Description: "File and line of the flow schema."},
	}
}

// LevelColumns returns the columns that kubectl prints of priority levels.
func LevelColumns() []schemas.Column {
	return []schemas.Column{
		{Name: "Nominal", Type: "integer", JSONPath: ".status.nominalSeats", Description: "Seats by its shares."},
		{Name: "Current", Type: "integer", JSONPath: ".status.currentSeats", Description: "Seats that it has now, with those that it borrows or lends."},
		{Name: "Seats", Type: "integer", JSONPath: ".status.seats", Description: "Seats that are taken."},
		{Name: "Executing", Type: "integer", JSONPath: ".status.executing"},
		{Name: "Waiting", Type: "integer", JSONPath: ".status.waiting"},
		{Name: "Longest Wait", Type: "string", JSONPath: ".status.longestWait"},
		{Name: "Dispatched", Type: "integer", JSONPath: ".status.dispatched"},
		{Name: "Refused", Type: "integer", JSONPath: ".status.refused"},
		{Name: "Exempt", Type: "boolean", JSONPath: ".status.exempt"},
		{Name: "Draining", Type: "boolean", JSONPath: ".status.draining", Priority: 1},
		{Name: "Source", Type: "string", JSONPath: ".status.source", Priority: 1, Description: "File and line in the bundle."},
	}
}
