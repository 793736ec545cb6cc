package planning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/wording"
)

const (
	// maxSide limits the characters of both sides in a sentence, maxPlaces the number of fields, and maxPlace the characters of one.
	maxSide, maxPlaces, maxPlace = 60, 3, 100
)

// happened says of a field, a kind or a part of the bundle what happened to it. Rules that are missing here have a sentence in
// their findings, or are named by their description.
var happened = map[string]string{
	"KIND_ADDED": "is a new kind", "KIND_REMOVED": "is no longer served", "KIND_SCOPE_CHANGED": "is in another scope",
	"KIND_NAMES_CHANGED": "has other names", "VERSION_ADDED": "has another version", "VERSION_REMOVED": "is no longer served in a version",
	"VERSION_DEPRECATED": "warns clients of a version", "STORAGE_VERSION_CHANGED": "is stored in another version",
	"CONVERSION_CHANGED": "is converted in another way",
	"FIELD_ADDED":        "is new", "FIELD_REMOVED": "is removed", "FIELD_REQUIRED": "must be set", "FIELD_OPTIONAL": "need not be set",
	"FIELD_TYPE_CHANGED": "has another type", "STRUCT_CLOSED": "keeps only declared fields", "STRUCT_OPENED": "keeps fields that are not declared",
	"BOUND_TIGHTENED": "admits less", "BOUND_LOOSENED": "admits more", "PATTERN_CHANGED": "has another pattern",
	"ENUM_VALUE_REMOVED": "admits fewer values", "ENUM_VALUE_ADDED": "admits more values",
	"ALTERNATIVE_REMOVED": "has an alternative less", "ALTERNATIVE_ADDED": "has an alternative more", "CONSTRAINT_CHANGED": "has another constraint",
	"DEFAULT_ADDED": "has a default", "DEFAULT_CHANGED": "has another default", "DEFAULT_REMOVED": "has no default",
	"IMMUTABLE_ADDED": "can no longer be changed", "IMMUTABLE_REMOVED": "can be changed", "SENSITIVE_ADDED": "is secret", "SENSITIVE_REMOVED": "is no longer secret",
	"LIST_TYPE_CHANGED": "is merged in another way", "SUBRESOURCE_ADDED": "is a new subresource", "SUBRESOURCE_REMOVED": "is no longer served",
	"SUBRESOURCE_CHANGED": "shows other fields", "SELECTABLE_ADDED": "can be selected", "SELECTABLE_REMOVED": "can no longer be selected",
	"COLUMN_CHANGED": "is another column", "DESCRIPTION_CHANGED": "has another description", "CUE_FALLBACK_ADDED": "is checked by CUE, which is slower",
	"VALIDATION_ADDED": "is a new validation", "VALIDATION_REMOVED": "is a validation that is gone", "VALIDATION_CHANGED": "is another validation",
	"OBJECTS_INVALID": "stored objects would be refused if created today", "OBJECTS_STUCK": "stored objects cannot be updated", "OBJECTS_DIFFER": "is shown otherwise",
	"VIEW_ADDED": "is a new view", "VIEW_REMOVED": "is no longer served", "VIEW_CHANGED": "has other rows or columns",
	"RULE_ADDED": "is new", "RULE_REMOVED": "is gone", "RULE_CHANGED": "checks something else", "RULE_TIGHTENED": "refuses more", "RULE_LOOSENED": "refuses less",
	"RULE_ACTION_WEAKENED": "no longer refuses", "RULE_ACTION_STRENGTHENED": "refuses", "RULE_FAILURE_CHANGED": "has another failurePolicy",
	"RULE_READS_CHANGED": "reads other stored objects", "RULE_RECORDS_CHANGED": "records something else in the audit log",
	"PARAM_CHANGED": "is another value", "MATCH_CHANGED": "is asked about other requests", "MESSAGE_CHANGED": "says something else",
	"MUTATION_ADDED": "is new", "MUTATION_REMOVED": "is gone", "MUTATION_CHANGED": "changes objects in another way",
	"TEAM_ADDED": "is a new team", "TEAM_REMOVED": "is no longer a team",
	"RETENTION_SHORTENED": "the past is erased earlier", "RETENTION_LENGTHENED": "the past is kept longer",
	"WINDOW_WIDENED": "more of the past can be read", "WINDOW_NARROWED": "less of the past can be read",
	"CLUSTER_RENAMED": "is for another control plane",
}

// about names what a change is about: a kind, a team, a binding or a rule.
func (c *change) about() string {
	f := c.findings[0]
	var text string
	switch section := plan.SectionOf(f.Rule); {
	case strings.HasPrefix(f.Rule, "TEAM_"):
		text, _, _ = strings.Cut(f.Path, "/")
		return "team " + text
	case section == plan.Kinds:
		text = c.short.kind(f.Kind)
	case section == plan.Policy:
		text = rulePath(f.Path)
	case section == plan.History:
		text = cmp.Or(c.short.kind(f.Kind), f.Path)
	default:
		text, _, _ = strings.Cut(f.Path, ", ")
	}
	others := map[string]bool{}
	for _, x := range c.findings {
		if plan.SectionOf(x.Rule) == plan.Kinds && x.Kind != f.Kind {
			others[x.Kind] = true
		}
	}
	if len(others) > 0 {
		text += fmt.Sprintf(" and %s", usage.Count(len(others), "other kind"))
	}
	return text
}

// sentence says in words what happened.
func (c *change) sentence() string {
	f := c.findings[0]
	switch section := plan.SectionOf(f.Rule); {
	case strings.HasPrefix(f.Rule, "TEAM_"):
		return c.ofTeam()
	case section == plan.Traffic:
		return c.short.in(ofTraffic(f))
	case section == plan.Access:
		return c.short.in(c.ofAccess())
	case section == plan.Kinds:
		if removed, added := c.rename(); removed != nil {
			was, is := wording.Cut(removed.Path, maxPlace), wording.Cut(added.Path, maxPlace)
			text := fmt.Sprintf("%s is removed, %s is new: it looks like a rename, which copies no values%s", was, is, c.dropped())
			if added.Rule == "FIELD_REQUIRED" {
				text += "; " + is + " must be set"
			}
			return text
		}
		if alternative := c.of("ALTERNATIVE_REMOVED"); alternative != nil {
			return wording.Cut(alternative.Path, maxPlace) + " loses the alternative " + alternative.Before + c.dropped()
		}
	}
	var parts []string
	said, last := map[string]bool{}, ""
	for _, f := range c.findings {
		if f.Class == plan.Looks && len(parts) > 0 || said[f.Rule+f.Before+f.After] {
			continue
		}
		said[f.Rule+f.Before+f.After] = true
		names := c.names(f)
		about := listed(names, maxPlaces)
		parts = append(parts, c.part(f, names, about != last || f.Rule == "PARAM_CHANGED"))
		last = about
	}
	return strings.Join(parts, "; ") + c.dropped()
}

// dropped says whose values are lost, if stored objects have fields that are removed.
func (c *change) dropped() string {
	var paths []string
	for _, f := range c.findings {
		if f.Rule == "FIELD_REMOVED" && f.Objects != nil && f.Objects.Differ > 0 {
			paths = append(paths, wording.Cut(f.Path, maxPlace))
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return "; the push needs --drop-fields: the next writes lose the values of " + listed(paths, maxPlaces)
}

// names returns the names of the fields or parts of a rule of which a change has the same to say as of a finding.
func (c *change) names(f *plan.Finding) (names []string) {
	for _, x := range c.findings {
		name := x.Path
		if strings.HasPrefix(x.Rule, "VIEW_") {
			name = "" // its kind has the name
		}
		switch plan.SectionOf(x.Rule) {
		case plan.Policy:
			name = strings.TrimPrefix(strings.TrimPrefix(x.Path, rulePath(x.Path)), "/")
		case plan.History, plan.Files:
			name = ""
		}
		if name = wording.Cut(name, maxPlace); x.Version != "" {
			name = strings.TrimSpace(name + " (" + x.Version + ")")
		}
		if x.Rule == f.Rule && x.Before == f.Before && x.After == f.After && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// part says what one finding means, with the names of what it is about if they are not said already.
func (c *change) part(f *plan.Finding, names []string, named bool) string {
	words := happened[f.Rule]
	if words == "" {
		words = lowerFirst(strings.TrimSuffix(cmp.Or(f.Message, plan.RuleNamed(f.Rule).Short), "."))
	}
	if f.Rule == "VIEW_CHANGED" {
		effect, _, _ := strings.Cut(strings.TrimSuffix(f.Message, "."), ". ")
		return lowerFirst(effect)
	}
	text := words
	if named && len(names) > 0 {
		text = listed(names, maxPlaces) + " " + words
		if len(names) > 1 {
			text = listed(names, maxPlaces) + ": each " + words
		}
		if f.Rule == "PARAM_CHANGED" {
			text = listed(names, maxPlaces)
		}
		if strings.HasPrefix(f.Rule, "CONDITION_") {
			text = listed(names, maxPlaces) + ": " + words
		}
	}
	switch sides := shortSides(f); {
	case f.Rule == "CONDITION_MEETS_DEFAULT":
		return text
	case f.Rule == "RULE_ADDED" || f.Rule == "RULE_REMOVED" || f.Rule == "MUTATION_CHANGED":
		if actions := cmp.Or(f.After, f.Before); actions != "" && actions != "Deny" {
			text += " (" + actions + ")"
		}
		var details []string
		for _, d := range f.Details {
			if strings.HasSuffix(d, ".") { // a sentence, and not an expression or a part
				continue
			}
			details = append(details, strings.TrimPrefix(oneLine(d), "params."))
		}
		if len(details) > 0 {
			text += ": " + listed(details, maxPlaces)
		}
		return text
	case sides != "":
		return text + ": " + sides
	}
	return text
}

// shortSides returns both sides if they are short: long ones are in the details.
func shortSides(f *plan.Finding) string {
	before, after := sides(f)
	before, after = strings.Join(strings.Fields(before), " "), strings.Join(strings.Fields(after), " ")
	switch {
	case after == "", strings.HasPrefix(before+after, "{"):
		return ""
	case before == "":
		return wording.Cut(after, maxSide)
	case len(before)+len(after) > 2*maxSide:
		return ""
	}
	return before + " → " + after
}

// of returns the first finding of a rule; nil if there is none.
func (c *change) of(rule string) *plan.Finding {
	for _, f := range c.findings {
		if f.Rule == rule {
			return f
		}
	}
	return nil
}

// rename returns the removed field and the new one if the change is a rename.
func (c *change) rename() (removed, added *plan.Finding) {
	for _, f := range c.findings {
		for _, g := range c.findings {
			if f.Rule == "FIELD_REMOVED" && f.With == g.Path && g.With == f.Path {
				return f, g
			}
		}
	}
	return nil, nil
}

// ofTeam says what happened to a team or its limits.
func (c *change) ofTeam() string {
	var parts []string
	for _, f := range c.findings {
		text := happened[f.Rule]
		if text == "" {
			_, limit, _ := strings.Cut(f.Path, "/")
			if text = strings.TrimSpace(limit + " " + cmp.Or(sidesText(f), f.Message)); len(parts) == 0 && f.Rule == "TEAM_LIMITS_WIDENED" {
				text = "may rule over more: " + text
			}
		} else if f.After != "" {
			text += " with " + f.After
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// meets says what stored objects and recorded requests a change meets.
func (c *change) meets() string {
	var all []string
	_, of, met := c.objects()
	for i, x := range met {
		if i == 0 {
			all = append(all, fmt.Sprintf("%d of %s %s", x.n, usage.Count(of, "object"), x.what))
		} else {
			all = append(all, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if c.refused > 0 {
		all = append(all, fmt.Sprintf("%s refused", usage.Count(c.refused, "recorded request")))
	}
	if c.allowed > 0 {
		all = append(all, fmt.Sprintf("%s allowed", usage.Count(c.allowed, "recorded refusal")))
	}
	if c.accepted() {
		all = append(all, "accepted")
	}
	if n := len(c.findings); n > 1 {
		all = append(all, fmt.Sprintf("%d findings", n))
	}
	return strings.Join(all, ", ")
}

// where returns the finding whose line is that of the change, with the number of further lines; nil if no finding has a line.
func (c *change) where() (at *plan.Finding, others int) {
	lines := map[string]bool{}
	for _, f := range c.findings {
		if f.Source.File != "" {
			lines[whereText(f)] = true
		}
	}
	for _, f := range c.findings {
		if where := whereText(f); where != "" && (len(lines) == 0 || lines[where]) {
			return f, max(0, len(lines)-1)
		}
	}
	return nil, 0
}

// otherLines counts further lines of a change.
func otherLines(n int) string {
	if n == 0 {
		return ""
	}
	return " and " + usage.Count(n, "other line")
}

func lowerFirst(text string) string {
	if text == "" || len(text) > 1 && text[1] >= 'A' && text[1] <= 'Z' {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}
