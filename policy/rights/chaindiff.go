package rights

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/wording"
)

// ChainChange is a difference between two chains of authorizers.
type ChainChange struct {
	Authorizer string `json:"authorizer"`
	// Type is Added, Removed, Moved or Changed.
	Type string `json:"type"`
	// Message describes the change.
	Message string `json:"message,omitempty"`
	// Weaker is set if the authorizer refuses less, or another one may now allow a request before
	// it.
	Weaker bool `json:"weaker,omitempty"`
}

// ChainDifference compares two chains of authorizers, and the plugins in them.
func ChainDifference(from, to *Rights) (list []ChainChange) {
	kept := inOrder(from.chain, to.chain)
	for i, name := range from.chain {
		if !slices.Contains(to.chain, name) {
			list = append(list, ChainChange{Authorizer: name, Type: "Removed", Weaker: from.mayDeny(name),
				Message: fmt.Sprintf("it was asked %s", placeIn(from.chain, i))})
		}
	}
	for i, name := range to.chain {
		was := slices.Index(from.chain, name)
		switch {
		case was < 0:
			list = append(list, ChainChange{Authorizer: name, Type: "Added", Weaker: precedes(from, to, i), Message: "it is asked " + placeIn(to.chain, i)})
		case !slices.Contains(kept, name):
			list = append(list, ChainChange{Authorizer: name, Type: "Moved", Weaker: overtaken(from, to, name), Message: fmt.Sprintf("it was asked %s, and is now %s", placeIn(from.chain, was), placeIn(to.chain, i))})
		}
	}
	for i := range to.access.Plugins {
		p := &to.access.Plugins[i]
		j := slices.IndexFunc(from.access.Plugins, func(x policy.Plugin) bool { return x.Name == p.Name })
		if name := policy.PluginPrefix + p.Name; j >= 0 && slices.Contains(from.chain, name) && slices.Contains(to.chain, name) {
			list = append(list, pluginChanges(name, &from.access.Plugins[j], p)...)
		}
	}
	return list
}

// mayDeny reports whether an authorizer can refuse requests. One in shadow mode cannot.
func (r *Rights) mayDeny(name string) bool {
	return name != policy.RBACAuthorizer && name != abacAuthorizer && name != policy.MastersAuthorizer && !r.shadows(name)
}

func (r *Rights) mayAllow(name string) bool { return name != policy.DenyAuthorizer && !r.shadows(name) }

func (r *Rights) shadows(name string) bool {
	return slices.ContainsFunc(r.access.Plugins, func(p policy.Plugin) bool { return p.Shadow && policy.PluginPrefix+p.Name == name })
}

// precedes reports whether an added authorizer may allow requests that a later one could deny
// before.
func precedes(from, to *Rights, i int) bool {
	return to.mayAllow(to.chain[i]) && slices.ContainsFunc(to.chain[i+1:], func(other string) bool { return slices.Contains(from.chain, other) && from.mayDeny(other) })
}

// overtaken reports whether name is part of a move that puts an authorizer which may allow before
// one which could deny.
func overtaken(from, to *Rights, name string) bool {
	swapped := func(denies, allows string) bool {
		a, b := slices.Index(from.chain, denies), slices.Index(from.chain, allows)
		c, d := slices.Index(to.chain, denies), slices.Index(to.chain, allows)
		return from.mayDeny(denies) && to.mayAllow(allows) && a < b && 0 <= d && d < c
	}
	return slices.ContainsFunc(from.chain, func(other string) bool { return swapped(name, other) || swapped(other, name) })
}

// placeIn describes the position of an authorizer in a chain.
func placeIn(chain []string, i int) string {
	if i == 0 {
		return "first"
	}
	return "after " + chain[i-1]
}

// inOrder returns the longest common subsequence of two lists.
func inOrder(a, b []string) []string {
	longest := make([][][]string, len(a)+1)
	for i := range longest {
		longest[i] = make([][]string, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			switch {
			case a[i] == b[j]:
				longest[i][j] = append([]string{a[i]}, longest[i+1][j+1]...)
			case len(longest[i+1][j]) >= len(longest[i][j+1]):
				longest[i][j] = longest[i+1][j]
			default:
				longest[i][j] = longest[i][j+1]
			}
		}
	}
	return longest[0][0]
}

func pluginChanges(name string, was, is *policy.Plugin) (list []ChainChange) {
	changed := func(weaker bool, format string, args ...any) {
		list = append(list, ChainChange{Authorizer: name, Type: "Changed", Message: fmt.Sprintf(format, args...), Weaker: weaker})
	}
	if !maps.Equal(was.SHA256, is.SHA256) {
		changed(false, "it is another program: the checksums differ")
	}
	if !bytes.Equal(was.Config, is.Config) {
		changed(false, "its config differs")
	}
	if !maps.Equal(was.Secrets, is.Secrets) {
		changed(false, "it gets other secrets")
	}
	if was.FailurePolicy != is.FailurePolicy {
		changed(is.FailurePolicy != "Deny", "failurePolicy was %s, and is now %s", was.FailurePolicy, is.FailurePolicy)
	}
	if was.Shadow != is.Shadow {
		changed(is.Shadow, "%s", map[bool]string{true: "it is not heeded any more: it is in shadow mode", false: "it is heeded now: it was in shadow mode"}[is.Shadow])
	}
	if a, b := matchWords(&was.Match), matchWords(&is.Match); a != b {
		changed(!matchIncludes(&is.Match, &was.Match), "it was asked about %s, and is now about %s", a, b)
	}
	if was.Timeout != is.Timeout {
		changed(false, "timeout was %v, and is now %v", was.Timeout, is.Timeout)
	}
	if was.CacheTTL != is.CacheTTL {
		changed(is.CacheTTL > was.CacheTTL, "cacheTTL was %v, and is now %v", was.CacheTTL, is.CacheTTL)
	}
	return list
}

// matchWords describes the requests that a plugin is asked about.
func matchWords(m *policy.PluginMatch) string {
	var parts []string
	for _, x := range []struct {
		name string
		list []string
	}{{"verbs", m.Verbs}, {"groups", m.APIGroups}, {"resources", m.Resources}} {
		if len(x.list) > 0 {
			parts = append(parts, x.name+" "+strings.Join(wording.Quoted(x.list), ", "))
		}
	}
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, " and ")
}

// matchIncludes reports whether a match contains all requests of another one.
func matchIncludes(m, other *policy.PluginMatch) bool {
	all := func(mine, others []string) bool {
		return len(mine) == 0 || slices.Contains(mine, "*") || len(others) > 0 && !slices.ContainsFunc(others, func(w string) bool { return !slices.Contains(mine, w) })
	}
	return all(m.Verbs, other.Verbs) && all(m.APIGroups, other.APIGroups) && all(m.Resources, other.Resources)
}
