package policy

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy/reach"
	"stele.dev/stele/schemas"
)

// HistoryVerb is the verb for reading further back than a kind's history window.
const HistoryVerb = "history"

// Window returns the length of the kind's history window, which counts only if bounded is true.
func (k *Kind) Window() (d time.Duration, bounded bool) {
	w := k.Reach()
	return w.Duration(), w.Bounded()
}

// Reach returns the kind's window with the id that sets it. The caller must not change it. A kind
// that belongs to no policy has an unbounded window.
func (k *Kind) Reach() *reach.Window {
	if w := k.Stored().window; w != nil {
		return w
	}
	return reach.Default(k.Resource(), false)
}

// sensitive reports whether a version of the kind has secret fields.
func (k *Kind) sensitive() bool {
	return isSecrets(k.Kind) || slices.ContainsFunc(k.Versions, func(v *Version) bool { return v.Program.Sensitive() })
}

// HoldsSecrets reports whether a version of the kind has secret fields. The kind needs no programs.
func HoldsSecrets(k *schemas.Kind) bool {
	return isSecrets(k) || slices.ContainsFunc(k.Versions, func(v schemas.Version) bool { return v.Schema.HasSensitive() })
}

// isSecrets reports whether the kind is Kubernetes' Secret, whose schema does not mark its fields as
// secret.
func isSecrets(k *schemas.Kind) bool { return k.Builtin && k.Resource() == "secrets" }

// Kind returns the kind of a resource, or nil.
func (p *Policy) Kind(r schema.GroupResource) *Kind { return p.byResource[r] }

// Retention returns how long the past of a resource is kept. A resource that the policy does not have, for
// example a removed kind, has the default.
func (p *Policy) Retention(r schema.GroupResource) reach.Kept {
	return p.retentions.Of(r.String(), func() bool { return p.holdsSecrets(r) })
}

func (p *Policy) holdsSecrets(r schema.GroupResource) bool {
	k := p.byResource[r]
	return k != nil && k.Stored().sensitive()
}

// openWindows sets each kind's window: that of the form, or the default.
func (p *Policy) openWindows() error {
	said, err := reach.ByResource(p.form.Windows)
	if err != nil {
		return err
	}
	for _, k := range p.kinds {
		p.byResource[k.GroupResource()] = k
		if k.window = said[k.Resource()]; k.window == nil && k.sensitive() {
			k.window = reach.Default(k.Resource(), true)
		}
	}
	return nil
}

// readRetentions reads the retentions of the form. The windows are open: each kind is known by its resource.
func (p *Policy) readRetentions() (err error) {
	p.retentions, err = reach.NewRetentions(p.form.Retentions, func(resource string) bool { return p.holdsSecrets(schema.ParseGroupResource(resource)) })
	return err
}
