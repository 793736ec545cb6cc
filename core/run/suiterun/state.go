package suiterun

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/commit"

	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/suites"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/quotas"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/wording"
)

// created is when given objects were created, unless they say it themselves.
var created = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// state returns a tip at which given objects exist. Later objects replace earlier ones of the same name.
func (r *Runner) state(given []suites.Object) (*commit.Tip, error) {
	tip := *r.tip
	if len(given) == 0 {
		return &tip, nil
	}
	tx := r.objects.Begin()
	revision := tip.Objects.Revision
	rendered := map[schema.GroupResource]bool{}
	put := func(g *stored) error {
		event, err := g.event(tx.State().Get(g.kind.GroupResource(), g.meta.Namespace, g.meta.Name))
		if err != nil {
			return err
		}
		revision++
		rendered[g.kind.GroupResource()] = true
		return tx.Apply(event, revision)
	}
	for i := range given {
		g, err := r.stored(given[i].JSON)
		if err != nil {
			return nil, err
		}
		if ns := g.meta.Namespace; ns != "" && tx.State().Get(commit.Namespaces, "", ns) == nil {
			n, err := r.stored(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, ns))
			if err != nil {
				return nil, err
			}
			if err := put(n); err != nil {
				return nil, err
			}
		}
		if err := put(g); err != nil {
			return nil, err
		}
	}
	kinds := slices.Clone(r.kinds)
	for i := range kinds {
		if rendered[kinds[i].GroupResource] {
			kinds[i].Render = r.renders[kinds[i].GroupResource]
		}
	}
	tx.SetKinds(kinds, nil)
	tip.Objects = tx.State()
	tip.Quotas = quotas.New(tip.Policy.Quotas(), tip.Objects)
	tip.Head.Revision = revision
	return &tip, nil
}

// stored is a given object as the log stores it.
type stored struct {
	kind    *policy.Kind
	meta    *metav1.ObjectMeta
	content map[string]any
	secret  bool
}

// stored returns a given object. The error says what is wrong with it.
func (r *Runner) stored(text json.RawMessage) (*stored, error) {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		return nil, err
	}
	apiVersion, _ := content["apiVersion"].(string)
	name, _ := content["kind"].(string)
	v, hint := r.versionOf(apiVersion, name)
	if v == nil {
		return nil, &unknown{fmt.Sprintf("the bundle has no kind %s of %s", name, apiVersion), hint}
	}
	meta, fields, err := metadata.Decode(content)
	switch {
	case err != nil:
		return nil, err
	case len(fields) > 0:
		return nil, fmt.Errorf("its metadata has fields that objects do not have: %s", strings.Join(fields, ", "))
	case v.Kind.Namespaced && meta.Namespace == "":
		return nil, &unknown{"it is in no namespace", "write metadata: namespace: …"}
	case !v.Kind.Namespaced && meta.Namespace != "":
		return nil, &unknown{"objects of its kind are in no namespace", "leave metadata.namespace out"}
	}
	at, deleted, uid, generation := meta.CreationTimestamp, meta.DeletionTimestamp, meta.UID, max(meta.Generation, 1)
	metadata.FillNew(meta, meta.Namespace, generation, created)
	if !at.IsZero() {
		meta.CreationTimestamp = at
	}
	if meta.DeletionTimestamp = deleted; deleted != nil {
		meta.DeletionGracePeriodSeconds = new(int64)
	}
	k := v.Kind.Stored()
	if meta.UID = uid; uid == "" {
		meta.UID = types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(k.Resource()+"/"+meta.Namespace+"/"+meta.Name)).String())
	}
	if k.Builtin {
		builtin.Prepare(k.Kind.Kind, content, nil)
		if k.GroupResource() == commit.Namespaces {
			if meta.Labels == nil {
				meta.Labels = map[string]string{}
			}
			meta.Labels["kubernetes.io/metadata.name"] = meta.Name
		}
	}
	if v.Kind.Converted() && k.Storage().From(v.Name) {
		v.Program.Prepare(content)
		if err := k.Storage().Convert(v.Name, content); err != nil {
			return nil, err
		}
	}
	return &stored{k, meta, content, k.Resource() == "secrets" || v.Program.Sensitive()}, nil
}

// event returns the event of a write of the object. was is the object that it replaces; nil if there is none.
func (g *stored) event(was *objects.Object) (*eventlog.Event, error) {
	if was != nil {
		g.meta.UID = types.UID(was.UID)
	}
	return commit.GivenEvent(g.kind, &policy.Object{Meta: g.meta, Content: g.content}, was, g.secret)
}

// unknown is an error with a hint.
type unknown struct{ message, hint string }

func (u *unknown) Error() string { return u.message }

// versionOf returns the version of a kind that objects name, or a hint which there are.
func (r *Runner) versionOf(apiVersion, kind string) (*policy.Version, string) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, ""
	}
	var names, versions []string
	for _, k := range r.policy.Kinds() {
		for _, v := range k.Versions {
			at := v.GroupVersionKind()
			if at.Kind == kind {
				if at.GroupVersion() == gv {
					return v, ""
				}
				versions = append(versions, at.GroupVersion().String())
			}
			names = append(names, at.Kind)
		}
	}
	if len(versions) > 0 {
		return nil, "its apiVersion is " + strings.Join(versions, " or ")
	}
	return nil, wording.DidYouMean(kind, names, "")
}
