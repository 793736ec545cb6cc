// Package contents counts the parts of a compiled bundle, and compares them with those of another policy.
package contents

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	"stele.dev/stele/policy"
)

// Content is one part of a bundle, and its difference from that part of another policy. Built-in
// objects do not count.
type Content struct {
	// Part is "kinds", "roles", "bindings", "denies", "rules" (of admission), "validations" (of
	// these rules, and of the kinds), "priority levels", "flow schemas", "webhooks", "mutations",
	// "admission plugins", "quota rules" (what quotas can limit, and their scopes) or "views".
	Part  string `json:"part"`
	Count int    `json:"count"`
	// Added, Removed and Changed are sorted ids. An item that only moved to another line has not
	// changed.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// Of returns the parts of the form's bundle, compared with the form before, which may be nil. Those from priority levels on are
// left out if neither has any.
func Of(f, before *policy.Form) []Content {
	now, then := parts(f), parts(&policy.Form{})
	if before != nil {
		then = parts(before)
	}
	for i := range now {
		now[i].compare(then[i].items)
	}
	contents := make([]Content, 0, len(now))
	for i := range now {
		if i < everywhere || len(now[i].items)+len(then[i].items) > 0 {
			contents = append(contents, now[i].Content)
		}
	}
	return contents
}

// everywhere is the number of parts that are named for every bundle.
const everywhere = 6

// part is a content with its items as JSON, keyed by id.
type part struct {
	Content
	items map[string]string
}

func parts(f *policy.Form) []part {
	names := []string{"kinds", "roles", "bindings", "denies", "rules", "validations", "priority levels", "flow schemas", "webhooks", "mutations", "admission plugins", "quota rules", "views"}
	parts := make([]part, len(names))
	for i, name := range names {
		parts[i] = part{Content{Part: name}, map[string]string{}}
	}
	kinds, roles, bindings, denies, rules, validations := parts[0].items, parts[1].items, parts[2].items, parts[3].items, parts[4].items, parts[5].items
	for i := range f.Kinds {
		k := &f.Kinds[i]
		if k.Builtin {
			continue
		}
		kinds[k.Resource()] = encoded(k)
		for _, v := range k.Versions {
			for j := range v.Rules {
				validations[k.Resource()+"/"+v.Name+"/"+v.Rules[j].Name] = encoded(&v.Rules[j])
			}
		}
	}
	for i := range f.Roles {
		if policy.OwningTeam(f.Roles[i].ID) != policy.BuiltinTeam {
			roles[f.Roles[i].ID] = encoded(&f.Roles[i])
		}
	}
	for i := range f.Bindings {
		if policy.OwningTeam(f.Bindings[i].ID) != policy.BuiltinTeam {
			bindings[f.Bindings[i].ID] = encoded(&f.Bindings[i])
		}
	}
	for i := range f.Denies {
		denies[f.Denies[i].ID] = encoded(&f.Denies[i])
	}
	for i := range f.Validations {
		r := &f.Validations[i]
		rules[r.ID] = encoded(r)
		for j := range r.Validations {
			validations[r.Validations[j].ID] = encoded(&r.Validations[j])
		}
	}
	levels, schemas := parts[everywhere].items, parts[everywhere+1].items
	for i := range f.Flow.PriorityLevels {
		levels[f.Flow.PriorityLevels[i].ID] = encoded(&f.Flow.PriorityLevels[i])
	}
	for i := range f.Flow.FlowSchemas {
		schemas[f.Flow.FlowSchemas[i].ID] = encoded(&f.Flow.FlowSchemas[i])
	}
	for i := range f.Reviewers {
		r := &f.Reviewers[i]
		of := everywhere + 2
		if r.Webhook == nil {
			of += 2
		}
		parts[of].items[r.ID] = encoded(r)
	}
	for i := range f.Mutations {
		parts[everywhere+3].items[f.Mutations[i].ID] = encoded(&f.Mutations[i])
	}
	quota := parts[everywhere+5].items
	for i := range f.Quota.Resources {
		quota[f.Quota.Resources[i].ID] = encoded(&f.Quota.Resources[i])
	}
	for i := range f.Quota.Scopes {
		quota[f.Quota.Scopes[i].ID] = encoded(&f.Quota.Scopes[i])
	}
	for i := range f.Views {
		parts[everywhere+6].items[f.Views[i].ID] = encoded(&f.Views[i])
	}
	for i := range parts {
		parts[i].Count = len(parts[i].items)
	}
	return parts
}

// sourceInJSON matches a position in a form.
var sourceInJSON = regexp.MustCompile(`"(source|immutable)":"[^"]*:[0-9]+:[0-9]+"`)

// encoded returns an item as JSON, without its positions.
func encoded(item any) string {
	text, err := json.Marshal(item)
	if err != nil {
		panic(err) // plain data always encodes
	}
	return string(sourceInJSON.ReplaceAll(text, []byte(`"$1":""`)))
}

func (p *part) compare(before map[string]string) {
	for _, id := range slices.Sorted(maps.Keys(p.items)) {
		switch was, ok := before[id]; {
		case !ok:
			p.Added = append(p.Added, id)
		case was != p.items[id]:
			p.Changed = append(p.Changed, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if _, ok := p.items[id]; !ok {
			p.Removed = append(p.Removed, id)
		}
	}
}
