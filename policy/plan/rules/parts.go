package rules

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// failure compares what becomes of writes for which a rule cannot be evaluated.
func (c *comparison) failure(was, is *policy.Validation, finding func(string) plan.Finding) {
	if was.Ignore == is.Ignore {
		return
	}
	f := finding("RULE_FAILURE_CHANGED")
	f.Before, f.After = failurePolicy(was.Ignore), failurePolicy(is.Ignore)
	if is.Ignore {
		f.Class, f.Message = plan.Widens, "Writes for which the rule cannot be evaluated are accepted now."
	} else {
		f.Class, f.Message = plan.Narrows, "Writes for which the rule cannot be evaluated are refused now."
	}
	c.add(harmless(f, was, is))
}

func failurePolicy(ignore bool) string {
	if ignore {
		return "Ignore"
	}
	return "Fail"
}

// harmless changes the class of a finding about a rule that refuses nothing on both sides.
func harmless(f plan.Finding, was, is *policy.Validation) plan.Finding {
	if !denies(was) && !denies(is) {
		f.Class = plan.Changes
		f.Details = append(f.Details, "The rule refuses nothing: it warns or records.")
	}
	return f
}

// reads compares which stored objects a rule reads, and which of them are its params.
func (c *comparison) reads(was, is *policy.Validation, finding func(string) plan.Finding) {
	before, after := storedKinds(was.Objects), storedKinds(is.Objects)
	if before != after {
		f := finding("RULE_READS_CHANGED")
		f.Before, f.After, f.Message, f.Evidence = before, after, "The rule reads other stored objects.", plan.Possible
		c.add(f)
	}
	a, b := was.ParamSource, is.ParamSource
	before, after = paramSource(a), paramSource(b)
	if before == after {
		return
	}
	f := finding("RULE_READS_CHANGED")
	f.Before, f.After, f.Message, f.Evidence = before, after, "The rule reads other stored objects as its params.", plan.Possible
	switch {
	case a == nil:
		f.Message = "The rule reads stored objects as its params."
	case b == nil:
		f.Message = "The rule does not read stored objects as its params any more."
	case a.Deny != b.Deny:
		action := *a
		action.Deny = b.Deny
		if paramSource(&action) != after {
			f.Details = append(f.Details, withoutParams(b.Deny))
			break
		}
		f.Message, f.Evidence, f.Class = withoutParams(b.Deny), plan.Proved, plan.Widens
		if b.Deny {
			f.Class = plan.Narrows
		}
		f = harmless(f, was, is)
	}
	c.add(f)
}

func withoutParams(deny bool) string {
	if deny {
		return "If there are no params, the rule counts as failed; it was skipped."
	}
	return "If there are no params, the rule is skipped; it counted as failed."
}

// lostReads returns the kinds of which a rule read stored objects, or params, and no longer does.
func lostReads(was, is *policy.Validation) (lost []string) {
	read := func(r *policy.Validation) (list []string) {
		for _, o := range r.Objects {
			list = append(list, storedKind(o.Group, o.Version, o.Resource))
		}
		if p := r.ParamSource; p != nil {
			list = append(list, storedKind(p.Group, p.Version, p.Resource))
		}
		return list
	}
	after := read(is)
	for _, kind := range read(was) {
		if !slices.Contains(after, kind) && !slices.Contains(lost, kind) {
			lost = append(lost, kind)
		}
	}
	return lost
}

// storedKinds describes the kinds whose stored objects expressions read.
func storedKinds(objects []policy.StoredKind) string {
	var list []string
	for _, o := range objects {
		list = append(list, o.Name+": "+storedKind(o.Group, o.Version, o.Resource))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func storedKind(group, version, resource string) string {
	if group != "" {
		resource += "." + group
	}
	return resource + " (" + version + ")"
}

// paramSource describes which stored objects are params.
func paramSource(s *policy.ParamSource) string {
	if s == nil {
		return ""
	}
	text := storedKind(s.Group, s.Version, s.Resource)
	switch {
	case s.Name != "":
		text += " " + s.Name
	case s.Selector != nil:
		text += " with " + encoded(s.Selector)
	}
	if s.Namespace != "" {
		text += " in " + s.Namespace
	}
	if s.Deny {
		return text + ", or Deny"
	}
	return text + ", or Allow"
}

// records compares what a rule adds to the audit log.
func (c *comparison) records(was, is *policy.Validation, finding func(string) plan.Finding) {
	annotations := func(r *policy.Validation) string {
		var list []string
		for i := range r.Annotations {
			list = append(list, r.Annotations[i].Name+": "+strings.TrimSpace(r.Annotations[i].Text))
		}
		return strings.Join(list, "; ")
	}
	if before, after := annotations(was), annotations(is); before != after {
		f := finding("RULE_RECORDS_CHANGED")
		f.Before, f.After, f.Message = before, after, "The audit log has other annotations of the rule."
		c.add(f)
	}
}

// differences returns the fields of a bundle that differ between two encoded forms, by the names that the bundle has for them.
func differences(was, is any, names map[string]string) (list []string) {
	for _, name := range changedFields(was, is) {
		if known := names[name]; known != "" {
			name = known
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// matchNames are the fields of a match whose names in the form are others than in the bundle.
var matchNames = map[string]string{"exact": "matchPolicy", "excludes": "excludeResourceRules"}

// changed says which fields differ.
func changed(fields []string) string {
	return fmt.Sprintf("What differs: %s.", strings.Join(fields, ", "))
}
