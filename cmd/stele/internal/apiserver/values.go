package apiserver

import (
	"fmt"
	"slices"
	"strings"
)

// oneWay is a flag that is accepted with the values that say what stele does anyway.
type oneWay struct {
	name   string
	values []string
	ifBare string
	why    string
}

func (o *oneWay) usage() string {
	return fmt.Sprintf("only %s: %s", strings.Join(quoted(o.values), " or "), o.why)
}

func quoted(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = v
		if v == "" {
			out[i] = `""`
		}
	}
	return out
}

// only are the flags that have one way to go.
var only = []*oneWay{
	{name: "audit-log-format", values: []string{"json"}, why: "there is no other format"},
	{name: "audit-log-version", values: []string{"audit.k8s.io/v1"}, why: "there is no other version"},
	{name: "audit-webhook-version", values: []string{"audit.k8s.io/v1"}, why: "there is no other version"},
	{name: "enable-garbage-collector", values: []string{"true"}, ifBare: "true", why: "for a server without this controller give --controllers '*,-garbagecollector'"},
	{name: "enable-priority-and-fairness", values: []string{"true"}, ifBare: "true", why: "requests are always limited by the priority levels of the policy"},
	{name: "feature-gates", values: []string{""}, why: "stele has no feature gates"},
	{name: "runtime-config", values: []string{"", "api/all=true", "api/ga=true", "api/beta=true", "api/alpha=true"}, why: "all versions that stele has are always served"},
	{name: "service-account-lookup", values: []string{"true"}, ifBare: "true", why: "tokens of deleted service accounts are always refused"},
	{name: "storage-backend", values: []string{"", "etcd3"}, why: "the log is in an etcd"},
	{name: "watch-cache", values: []string{"true"}, ifBare: "true", why: "reads are always answered from memory"},
}

type onlyValue struct {
	only *oneWay
	text string
}

func (v *onlyValue) Set(text string) error {
	if !slices.Contains(v.only.values, text) {
		return fmt.Errorf("want %s: %s", strings.Join(quoted(v.only.values), " or "), v.only.why)
	}
	v.text = text
	return nil
}

func (v *onlyValue) Type() string {
	if v.only.ifBare != "" {
		return "bool"
	}
	return "string"
}
func (v *onlyValue) String() string { return v.text }

// ignored is a flag about things that stele does not have.
type ignored struct {
	name, concerns string
	boolean        bool
	check          func(string) error
}

type ignoredValue struct {
	ignored *ignored
	text    string
}

func (v *ignoredValue) Set(text string) error {
	if v.ignored.check != nil {
		if err := v.ignored.check(text); err != nil {
			return err
		}
	}
	v.text = text
	return nil
}

func (v *ignoredValue) Type() string {
	if v.ignored.boolean {
		return "bool"
	}
	return "string"
}
func (v *ignoredValue) String() string { return v.text }

// refusedValue is a flag that cannot be given, and why.
type refusedValue string

func (v refusedValue) Set(string) error { return fmt.Errorf("stele has no such flag: %s", string(v)) }
func (refusedValue) Type() string       { return "string" }
func (refusedValue) String() string     { return "" }
