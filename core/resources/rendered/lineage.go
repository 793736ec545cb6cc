package rendered

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/policies"
)

// activation is the activation of a policy, as far as its objects need it.
type activation struct {
	revision uint64
	at       time.Time
	rendered *policies.Rendered // nil if it is not known
}

func activationOf(tip *commit.Tip) activation {
	a := activation{revision: tip.ActivationRevision(), at: tip.Activated.Truncate(time.Second).UTC()}
	if tip.Policies.Active != nil {
		a.rendered = tip.Policies.Active.Rendered
	}
	return a
}

// time returns the log time of this activation, or of an earlier one that a lineage names.
func (a *activation) time(revision uint64) time.Time {
	if revision == a.revision {
		return a.at
	}
	return a.rendered.Time(revision)
}

// lineage returns how long the object of a rule has been as it is, in whatever namespace.
func (a *activation) lineage(k *Kind, e *Entry) policies.Lineage {
	return a.rendered.Of(k.Version.Kind.Resource(), e.key(), a.revision)
}

// since returns the revision since which the rule has had a namespace without a break.
func since(l *policies.Lineage, namespace string) uint64 {
	if len(l.Earlier) == 0 {
		return l.Since
	}
	from := l.Scoped
	for _, s := range slices.Backward(l.Earlier) {
		if !(&policy.Binding{Namespaces: s.Namespaces}).In(namespace) {
			break
		}
		from = s.From
	}
	return from
}

// Next returns how long the objects of a policy will have been as they are once it replaces the policy of a tip. An object that is
// rendered as before stays as it is.
func Next(tip *commit.Tip, form *policy.Form) *policies.Rendered {
	next := &policies.Rendered{Times: map[uint64]int64{}, Objects: map[string]map[string]policies.Lineage{}}
	if tip.Policy == nil {
		return next
	}
	now := activationOf(tip)
	for _, k := range Kinds() {
		before := map[string]*Entry{}
		for _, e := range k.Entries(tip.Policy.Base().Form()) {
			before[e.key()] = e
		}
		lineages := map[string]policies.Lineage{}
		for _, e := range k.Entries(form) {
			was := before[e.key()]
			if was == nil || was.Name != e.Name { // under another name it is another object
				continue
			}
			l := now.lineage(k, was)
			same, sameSpec := compare(k, was, e)
			shown := cmp.Or(l.Source, was.Source.String())
			l.Source = ""
			if !same {
				l.Changed = 0
			} else if shown != e.Source.String() {
				l.Source = shown
			}
			if !k.Counted {
				l.Generation = 0
			} else if !sameSpec {
				l.Generation++
			}
			if !slices.Equal(was.Namespaces, e.Namespaces) {
				from := l.Since
				if len(l.Earlier) > 0 {
					from = l.Scoped
				}
				l.Earlier = append(slices.Clip(l.Earlier), policies.Scope{From: from, Namespaces: was.Namespaces})
				l.Scoped = 0
			} else if len(l.Earlier) == 0 {
				l.Scoped = 0
			}
			for _, revision := range append([]uint64{l.Since, l.Changed, l.Scoped}, froms(l.Earlier)...) {
				if revision != 0 {
					next.Times[revision] = now.time(revision).Unix()
				}
			}
			lineages[e.key()] = l
		}
		if len(lineages) > 0 {
			next.Objects[k.Version.Kind.Resource()] = lineages
		}
	}
	return next
}

func froms(earlier []policies.Scope) (list []uint64) {
	for _, s := range earlier {
		list = append(list, s.From)
	}
	return list
}

// compare reports whether two rules of one name are rendered as the same object, wherever they stand, and whether with the same
// spec.
func compare(k *Kind, a, b *Entry) (same, sameSpec bool) {
	if a.Rule != nil && reflect.DeepEqual(a.Rule, b.Rule) {
		return true, true
	}
	x, y := a.render(k, "", version{source: "anywhere"}), b.render(k, "", version{source: "anywhere"})
	if string(x) == string(y) {
		return true, true
	}
	return false, reflect.DeepEqual(specIn(x), specIn(y))
}

// specIn returns all of an object but its metadata and status.
func specIn(object []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return nil // it was made by json.Marshal
	}
	delete(fields, "metadata")
	delete(fields, "status")
	return fields
}
