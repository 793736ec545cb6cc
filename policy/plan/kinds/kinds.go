// Package kinds compares the kinds of two policies: names, versions, schemas and validations.
//
// [Compare] walks the forms of each version side by side. It compares what they admit, and not how they are written:
// bounds as exact numbers, enumerations as sets, regular expressions as the strings that they match (package
// regexps), alternatives by what selects them. Where this does not tell which side admits more, it generates values
// and looks for one that only one side accepts. What only CUE can check is compared by its text.
//
// [Affected] and [KindsToTry] tell other comparisons where to look.
package kinds

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

// Compare returns what differs between the kinds of two policies. It says nothing if there is no policy in force. The
// error is the context's. Compare never evaluates CUE. It is safe for concurrent use.
func Compare(ctx context.Context, s plan.Sides) ([]plan.Finding, error) {
	if s.From == nil || s.To == nil {
		return nil, ctx.Err()
	}
	var all []plan.Finding
	for _, was := range s.From.Kinds() {
		if s.To.Kind(was.GroupResource()) == nil {
			all = append(all, plan.Finding{
				Rule: "KIND_REMOVED", Class: plan.Breaks, Kind: was.Resource(), Before: named(was.Kind), Was: was.Source,
				Message: "The kind is no longer served.", Evidence: plan.Proved,
				Fix: []string{
					fmt.Sprintf("Save the objects: stele export %s -A", was.Resource()),
					fmt.Sprintf("Delete them: kubectl delete %s -A --all. The server refuses the push as long as there are any.", was.Resource()),
					"Push.",
				},
			})
		}
	}
	for _, is := range s.To.Kinds() {
		if s.From.Kind(is.GroupResource()) == nil {
			all = append(all, plan.Finding{
				Rule: "KIND_ADDED", Class: plan.Widens, Kind: is.Resource(), After: named(is.Kind), Source: is.Source,
				Message: "The kind is new.", Evidence: plan.Proved,
			})
		}
	}
	for _, p := range pairs(s) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all = append(all, p.compare(ctx)...)
	}
	return append(all, views(s)...), ctx.Err()
}

// named returns the names of a kind: "Widget (widgets, wd)".
func named(k *schemas.Kind) string {
	return k.Kind + " (" + strings.Join(append([]string{k.Plural}, k.ShortNames...), ", ") + ")"
}

func (p pair) compare(ctx context.Context) []plan.Finding {
	found := p.names()
	found = append(found, p.compareVersions()...)
	versions := p.versions()
	each := make([][]plan.Finding, len(versions))
	for i, v := range versions {
		c := &comparison{ctx: ctx, was: v.was, is: v.is}
		c.node(place{}, v.was.Schema, v.is.Schema)
		c.renames()
		c.validations()
		c.extras()
		each[i] = c.found
	}
	found = append(found, p.merge(versions, each)...)
	for i := range found {
		found[i].Kind = p.is.Resource()
	}
	return found
}

// merge returns the findings of all versions. What is found in each of them is one finding without a version.
func (p pair) merge(versions []versionPair, each [][]plan.Finding) (all []plan.Finding) {
	in := map[string][]string{}
	for i, found := range each {
		for _, f := range found {
			in[findingKey(&f)] = append(in[findingKey(&f)], versions[i].is.Name)
		}
	}
	seen := map[string]bool{}
	for _, found := range each {
		for _, f := range found {
			key := findingKey(&f)
			if seen[key] {
				continue
			}
			seen[key] = true
			switch names := slices.Compact(in[key]); {
			case len(names) >= len(versions): // in all of them
			case len(names) == 1:
				f.Version = names[0]
			default:
				f.Details = append(f.Details, "It concerns the versions "+strings.Join(names, ", ")+".")
			}
			all = append(all, f)
		}
	}
	return all
}

// findingKey returns a text that two findings share if they say the same.
func findingKey(f *plan.Finding) string {
	return fmt.Sprintf("%q", []string{f.Rule, string(f.Class), f.Path, f.Before, f.After})
}

// names compares what a kind is called, and where its objects are.
func (p pair) names() (found []plan.Finding) {
	was, is := p.was.Kind, p.is.Kind
	add := func(rule string, class plan.Class, path, before, after, message string) {
		if before != after {
			found = append(found, plan.Finding{Rule: rule, Class: class, Path: path, Before: before, After: after,
				Source: is.Source, Was: was.Source, Message: message, Evidence: plan.Proved})
		}
	}
	scope := func(k *schemas.Kind) string {
		if k.Namespaced {
			return "Namespaced"
		}
		return "Cluster"
	}
	add("KIND_SCOPE_CHANGED", plan.Breaks, "scope", scope(was), scope(is), "Objects are addressed otherwise, and stored ones cannot be found.")
	add("KIND_NAMES_CHANGED", plan.Breaks, "names.kind", was.Kind, is.Kind, "Clients name the kind in each object that they send.")
	add("KIND_NAMES_CHANGED", plan.Changes, "names.listKind", was.ListKind, is.ListKind, "Lists have another kind.")
	add("KIND_NAMES_CHANGED", plan.Changes, "names.singular", was.Singular, is.Singular, "kubectl knows the kind by another name.")
	list := func(names []string) string { return strings.Join(slices.Sorted(slices.Values(names)), ", ") }
	add("KIND_NAMES_CHANGED", plan.Changes, "names.shortNames", list(was.ShortNames), list(is.ShortNames), "kubectl knows the kind by other short names.")
	add("KIND_NAMES_CHANGED", plan.Changes, "names.categories", list(was.Categories), list(is.Categories), "The kind is in other categories, such as all.")
	return found
}

// compareVersions compares which versions there are.
func (p pair) compareVersions() (found []plan.Finding) {
	served := func(k *policy.Kind, name string) bool {
		v, ok := k.Version(name)
		return ok && v.Served
	}
	for _, was := range p.was.Versions {
		if was.Served && !served(p.is, was.Name) {
			found = append(found, plan.Finding{Rule: "VERSION_REMOVED", Class: plan.Breaks, Path: "versions." + was.Name, Version: was.Name,
				Before: "served", Source: p.is.Source, Was: sourceOf(was), Evidence: plan.Proved,
				Message: "Clients that ask for this version get 404.",
				Fix:     []string{"Mark the version as deprecated first, so that its users get a warning."}})
		}
	}
	for _, is := range p.is.Versions {
		if is.Served && !served(p.was, is.Name) {
			found = append(found, plan.Finding{Rule: "VERSION_ADDED", Class: plan.Changes, Path: "versions." + is.Name, Version: is.Name,
				After: "served", Source: sourceOf(is), Was: p.was.Source, Evidence: plan.Proved,
				Message: "Clients can ask for this version."})
		}
	}
	found = append(found, p.conversions()...)
	if p.was.StorageVersion != p.is.StorageVersion {
		found = append(found, plan.Finding{Rule: "STORAGE_VERSION_CHANGED", Class: plan.Changes, Path: "storageVersion",
			Before: p.was.StorageVersion, After: p.is.StorageVersion, Source: sourceOf(p.is.Storage()), Was: sourceOf(p.was.Storage()), Evidence: plan.Proved,
			Message: "Objects are converted to the new version when the policy takes effect."})
	}
	return found
}

func sourceOf(v *policy.Version) schemas.Position {
	if !v.Schema.Source.IsZero() {
		return v.Schema.Source
	}
	return v.Kind.Source
}
