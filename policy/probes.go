package policy

import "encoding/json"

// Probes are sample requests and objects, with the results of the program that compiled the form. A
// program with another result must not enforce the form: it would be another policy.
type Probes struct {
	Access  []AccessProbe `json:"access,omitempty"`
	Objects []ObjectProbe `json:"objects,omitempty"`
	// Conversions are objects that are converted to other versions.
	Conversions []ConversionProbe `json:"conversions,omitempty"`
}

// ConversionProbe is an object of a version, and what it is in another one.
type ConversionProbe struct {
	Resource  string          `json:"resource"` // plural.group
	From      string          `json:"from"`
	To        string          `json:"to"`
	Object    json.RawMessage `json:"object"`
	Converted json.RawMessage `json:"converted"`
}

// AccessProbe is a request and its decision; "" if no rule decides.
type AccessProbe struct {
	User      string   `json:"user,omitempty"`
	Groups    []string `json:"groups,omitempty"`
	Verb      string   `json:"verb"`
	Group     string   `json:"group,omitempty"`
	Resource  string   `json:"resource,omitempty"` // with its subresource
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"`
	Path      string   `json:"path,omitempty"`
	Decision  string   `json:"decision"`
}

// ObjectProbe is an object to be created.
type ObjectProbe struct {
	Resource string          `json:"resource"` // plural.group
	Version  string          `json:"version"`
	Object   json.RawMessage `json:"object"`
	// Prepared is the object after pruning and defaulting; empty if it is the same.
	Prepared json.RawMessage `json:"prepared,omitempty"`
	// Refused are the invalid fields and the rules that reject the object.
	Refused []string `json:"refused,omitempty"`
}
