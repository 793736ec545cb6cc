package decisionsapi

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"stele.dev/stele/core/past"
	"stele.dev/stele/eventlog/logpb"
)

// selector selects decisions.
type selector struct {
	namespace string // "" selects all decisions, also those about objects without a namespace
	// since and until are the first and the last moment; nil means unbounded.
	since, until *past.Moment
	terms        []fields.Requirement
}

// Names of selectable fields.
const (
	fieldName      = "metadata.name"
	fieldType      = "type"
	fieldOutcome   = "outcome"
	fieldStage     = "stage"
	fieldCode      = "code"
	fieldGroup     = "actor.group"
	fieldVerb      = "request.verb"
	fieldAgent     = "request.userAgent"
	fieldNamespace = "object.namespace"
	since          = "since"
	until          = "until"
)

// selectable maps the names of selectable fields to functions that return their values.
var selectable = map[string]func(*record) string{
	fieldName:              (*record).name,
	"metadata.namespace":   (*record).namespace,
	fieldType:              func(r *record) string { return r.typ },
	fieldOutcome:           (*record).outcome,
	fieldStage:             (*record).stage,
	fieldCode:              func(r *record) string { return strconv.Itoa(r.code()) },
	"reason":               func(r *record) string { return r.decision.GetReason() },
	"rule":                 func(r *record) string { rule, _ := r.rule(); return rule },
	"policy":               func(r *record) string { return hex.EncodeToString(r.meta.GetPolicyDigest()) },
	"flowSchema":           func(r *record) string { return r.decision.GetFlowSchema() },
	"priorityLevel":        func(r *record) string { return r.decision.GetPriorityLevel() },
	"actor.user":           func(r *record) string { return r.meta.GetActor().GetUser() },
	"actor.impersonator":   func(r *record) string { return r.meta.GetActor().GetImpersonator().GetUser() },
	fieldGroup:             nil, // any of the user's groups
	fieldVerb:              func(r *record) string { return r.meta.GetRequest().GetVerb() },
	"request.subresource":  func(r *record) string { return r.meta.GetRequest().GetSubresource() },
	"request.auditID":      func(r *record) string { return r.meta.GetRequest().GetAuditId() },
	"request.fieldManager": func(r *record) string { return r.meta.GetRequest().GetFieldManager() },
	fieldAgent:             func(r *record) string { return r.meta.GetRequest().GetUserAgent() },
	"object.group":         func(r *record) string { return r.object.GetGroup() },
	"object.resource":      func(r *record) string { return r.object.GetResource() },
	fieldNamespace:         (*record).namespace,
	"object.name":          func(r *record) string { return r.object.GetName() },
}

func (r *record) stage() string {
	if r.write != nil {
		return "commit"
	}
	return r.decision.GetStage()
}

// newSelector returns the selector of a namespace ("" for all) and a field selector (nil for none). Clients see its error.
func newSelector(namespace string, of fields.Selector) (*selector, error) {
	s := &selector{namespace: namespace}
	if of == nil {
		return s, nil
	}
	for _, q := range of.Requirements() {
		if q.Field == since || q.Field == until {
			if err := s.bound(q); err != nil {
				return nil, err
			}
			continue
		}
		if _, known := selectable[q.Field]; !known {
			return nil, fmt.Errorf("field label not supported: %s (decisions have %s, %s and %s)", q.Field, strings.Join(slices.Sorted(maps.Keys(selectable)), ", "), since, until)
		}
		if err := checkValue(q); err != nil {
			return nil, err
		}
		s.terms = append(s.terms, q)
	}
	return s, nil
}

// checkValue returns an error if no decision can have the value of a term, because the field has few values.
func checkValue(q fields.Requirement) error {
	values := map[string][]string{fieldOutcome: Outcomes(), fieldType: {TypeWrite, TypeDecision, TypeCounted, TypeLost}}[q.Field]
	if values != nil && !slices.Contains(values, q.Value) {
		return fmt.Errorf("%s is one of %s, not %q", q.Field, strings.Join(values, ", "), q.Value)
	}
	return nil
}

func (s *selector) bound(q fields.Requirement) error {
	end := &s.since
	if q.Field == until {
		end = &s.until
	}
	if q.Operator == selection.NotEquals {
		return fmt.Errorf("%s takes = and no other operator", q.Field)
	}
	if *end != nil {
		return fmt.Errorf("%s is given twice", q.Field)
	}
	m, err := past.Parse(q.Value)
	if err != nil {
		return fmt.Errorf("%s: %w", q.Field, err)
	}
	*end = &m
	return nil
}

// selects reports whether there is a field selector.
func (s *selector) selects() bool { return len(s.terms) > 0 || s.since != nil || s.until != nil }

// exactly returns the value that the selector requires of a field, if it requires one.
func (s *selector) exactly(field string) (string, bool) {
	for _, q := range s.terms {
		if q.Field == field && q.Operator != selection.NotEquals {
			return q.Value, true
		}
	}
	return "", false
}

// matches reports whether the selector matches a record. It does not compare the time.
func (s *selector) matches(r *record) bool {
	if s.namespace != "" && r.namespace() != s.namespace {
		return false
	}
	for i := range s.terms {
		q := &s.terms[i]
		if has(r, q) == (q.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

func has(r *record, q *fields.Requirement) bool {
	if q.Field == fieldGroup {
		return slices.Contains(r.meta.GetActor().GetGroups(), q.Value)
	}
	value := selectable[q.Field](r)
	if prefix, ok := strings.CutSuffix(q.Value, "*"); ok && q.Field == fieldAgent {
		return strings.HasPrefix(value, prefix)
	}
	return value == q.Value
}

// reads reports whether a verb is that of a read.
func reads(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// writes reports whether writes can match the selector.
func (s *selector) writes() bool {
	for field, of := range map[string]string{fieldType: TypeWrite, fieldOutcome: written, fieldStage: "commit"} {
		if value, ok := s.exactly(field); ok && value != of {
			return false
		}
	}
	verb, ok := s.exactly(fieldVerb)
	return !ok || !reads(verb)
}

// decisions reports whether records of the decision log can match the selector.
func (s *selector) decisions() bool {
	typ, of := s.exactly(fieldType)
	outcome, with := s.exactly(fieldOutcome)
	return (!of || typ != TypeWrite) && (!with || outcome != written)
}

// wantsReads reports whether only reads that were answered match the selector.
func (s *selector) wantsReads() bool {
	verb, _ := s.exactly(fieldVerb)
	outcome, _ := s.exactly(fieldOutcome)
	return outcome == Outcome(logpb.Outcome_OUTCOME_READ) || outcome == "" && reads(verb)
}
