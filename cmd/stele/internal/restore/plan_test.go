package restore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/restore"
)

var (
	configMaps = restore.Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Namespaced: true}
	secrets    = restore.Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: "secrets", Namespaced: true}
	namespaces = restore.Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, Resource: "namespaces", StatusSubresource: true}
	widgets    = restore.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, Resource: "widgets", Namespaced: true, StatusSubresource: true}
)

// object of a kind, in YAML without what its kind says; nil for "".
func object(t *testing.T, k restore.Kind, name, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetGroupVersionKind(k.GroupVersionKind)
	o.SetName(name)
	if k.Namespaced {
		o.SetNamespace("shop")
	}
	return o
}

func subject(t *testing.T, k restore.Kind, name, then, now string) restore.Subject {
	t.Helper()
	s := restore.Subject{Kind: k, Name: name, Then: object(t, k, name, then), Now: object(t, k, name, now)}
	if k.Namespaced {
		s.Namespace = "shop"
	}
	return s
}

// story tells a plan in lines.
func story(p *restore.Plan) string {
	var b strings.Builder
	for _, i := range p.Items {
		fmt.Fprintf(&b, "%s %s\n", i.Action, i.Key())
		for _, d := range i.View().Differences {
			fmt.Fprintf(&b, "  %s %s: %s -> %s\n", d.Op, d.Path, restore.Show(d.From), restore.Show(d.To))
		}
		for _, text := range i.Notes {
			fmt.Fprintf(&b, "  %s\n", text)
		}
		if i.Refused != "" {
			fmt.Fprintf(&b, "  refused: %s\n", i.Refused)
		}
	}
	return b.String()
}

// noOwners are those of a world in which there is nothing else.
func noOwners(string, metav1.OwnerReference) (types.UID, error) { return "", nil }

func TestOfOneObject(t *testing.T) {
	const all = "prune, status"
	for _, c := range []struct {
		name      string
		kind      restore.Kind
		then, now string
		options   string
		want      string
	}{
		{
			name: "what has not changed stays", kind: configMaps,
			then: `{metadata: {uid: u, resourceVersion: "5", generation: 1, creationTimestamp: "2026-01-01T00:00:00Z"}, data: {a: x}}`,
			now:  `{metadata: {uid: u, resourceVersion: "9", generation: 7, creationTimestamp: "2026-01-01T00:00:00Z", managedFields: [{manager: m}]}, data: {a: x}}`,
			want: "same configmap shop/x\n",
		},
		{
			name: "what has changed is updated", kind: configMaps,
			then: `{metadata: {uid: u, labels: {app: web}}, data: {a: x, b: w}}`,
			now:  `{metadata: {uid: u}, data: {a: z, c: w}}`,
			want: `update configmap shop/x
  replace data.a: "z" -> "x"
  add data.b: null -> "w"
  remove data.c: "w" -> null
  add metadata.labels: null -> {"app":"web"}
`,
		},
		{
			name: "what is gone is created", kind: configMaps,
			then: `{metadata: {uid: u}, data: {a: x}}`,
			want: "create configmap shop/x\n  gets a new uid, because u is gone\n",
		},
		{
			name: "another object of the name is updated", kind: configMaps,
			then: `{metadata: {uid: u}, data: {a: x}}`,
			now:  `{metadata: {uid: v}, data: {a: z}}`,
			want: `update configmap shop/x
  replace data.a: "z" -> "x"
  another object has the name since u is gone: that is updated, and keeps its uid v
`,
		},
		{
			name: "another object of the name that is equal stays", kind: configMaps,
			then: `{metadata: {uid: u}, data: {a: x}}`,
			now:  `{metadata: {uid: v}, data: {a: x}}`,
			want: "same configmap shop/x\n",
		},
		{
			name: "what came since stays", kind: configMaps,
			now:  `{metadata: {uid: u}}`,
			want: "keep configmap shop/x\n  came since; --prune deletes it\n",
		},
		{
			name: "what came since is deleted if that is asked", kind: configMaps, options: all,
			now:  `{metadata: {uid: u}}`,
			want: "delete configmap shop/x\n  came since\n",
		},
		{
			name: "what came since and goes is left alone", kind: configMaps, options: all,
			now:  `{metadata: {uid: u, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [example.com/hold]}}`,
			want: "keep configmap shop/x\n  came since, and is being deleted\n",
		},
		{
			name: "there never was anything", kind: configMaps,
		},
		{
			name: "what is being deleted cannot come back yet", kind: configMaps,
			then: `{metadata: {uid: u}}`,
			now:  `{metadata: {uid: u, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [example.com/hold]}}`,
			want: "refuse configmap shop/x\n  refused: it is being deleted, and waits for example.com/hold: it can come back once it is gone\n",
		},
		{
			name: "what was being deleted then is not when it is back", kind: configMaps,
			then: `{metadata: {uid: u, deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 0, finalizers: [foregroundDeletion, example.com/hold]}}`,
			want: `create configmap shop/x
  gets a new uid, because u is gone
  was being deleted then; comes back without that deletion
  without the finalizers of a deletion that had begun: foregroundDeletion
  with its finalizers: example.com/hold
`,
		},
		{
			name: "finalizers are as they were", kind: configMaps,
			then: `{metadata: {uid: u, finalizers: [example.com/hold]}}`,
			now:  `{metadata: {uid: u}}`,
			want: `update configmap shop/x
  add metadata.finalizers: null -> ["example.com/hold"]
  with its finalizers: example.com/hold
`,
		},
		{
			name: "status is another write where it is a subresource", kind: widgets, options: all,
			then: `{metadata: {uid: u}, spec: {size: 1}, status: {phase: Ready}}`,
			now:  `{metadata: {uid: u}, spec: {size: 1}, status: {phase: Failed, reason: x}}`,
			want: `update widget.example.com shop/x
  replace status.phase: "Failed" -> "Ready"
  remove status.reason: "x" -> null
`,
		},
		{
			name: "a status that there was not then goes", kind: widgets, options: all,
			then: `{metadata: {uid: u}}`,
			now:  `{metadata: {uid: u}, status: {phase: Failed}}`,
			want: "update widget.example.com shop/x\n  remove status.phase: \"Failed\" -> null\n",
		},
		{
			name: "status is left where that is asked", kind: widgets,
			then: `{metadata: {uid: u}, status: {phase: Ready}}`,
			now:  `{metadata: {uid: u}, status: {phase: Failed}}`,
			want: "same widget.example.com shop/x\n",
		},
		{
			name: "status is like any field where it is no subresource", kind: configMaps,
			then: `{metadata: {uid: u}, status: {phase: Ready}}`,
			now:  `{metadata: {uid: u}, status: {phase: Failed}}`,
			want: "update configmap shop/x\n  replace status.phase: \"Failed\" -> \"Ready\"\n",
		},
		{
			name: "a namespace's life cycle is the server's", kind: namespaces, options: all,
			then: `{metadata: {uid: u}, spec: {finalizers: [kubernetes]}, status: {phase: Active}}`,
			now:  `{metadata: {uid: u}, spec: {finalizers: []}, status: {phase: Odd}}`,
			want: "same namespace x\n",
		},
		{
			name: "what Secrets hold is not shown", kind: secrets,
			then: `{metadata: {uid: u, annotations: {kubectl.kubernetes.io/last-applied-configuration: "password: old"}}, data: {password: b2xk, user: bWU=}}`,
			now:  `{metadata: {uid: u}, data: {password: bmV3}}`,
			want: `update secret shop/x
  replace data.password: "(hidden)" -> "(hidden)"
  add data.user: null -> "(hidden)"
  add metadata.annotations: null -> "(hidden)"
`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := restore.Make([]restore.Subject{subject(t, c.kind, "x", c.then, c.now)}, noOwners, restore.Options{Prune: c.options == all, Status: c.options == all})
			if diff := cmp.Diff(c.want, story(p)); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
		})
	}
}

// What becomes of an object that was owned by the widget `owner`, of the uid o.
func TestOfOwners(t *testing.T) {
	const owned = `{metadata: {uid: u, ownerReferences: [{apiVersion: example.com/v1, kind: Widget, name: owner, uid: o}]}}`
	const refersTo = `[{"apiVersion":"example.com/v1","kind":"Widget","name":"owner","uid":"%s"}]`
	is := func(uid types.UID, err error) restore.Owners {
		return func(string, metav1.OwnerReference) (types.UID, error) { return uid, err }
	}
	for _, c := range []struct {
		name                string
		now                 string // of the object
		owners              restore.Owners
		ownerThen, ownerNow string // if it is in the plan
		want                string // of the object
	}{
		{
			name: "the owner is there", owners: is("o", nil),
			want: "create configmap shop/x\n  gets a new uid, because u is gone\n",
		},
		{
			name: "the owner is gone", owners: is("", nil),
			want: "create configmap shop/x\n  gets a new uid, because u is gone\n  without its owner, widget owner, which is gone\n",
		},
		{
			name: "the owner is gone, and was let go before", owners: is("", nil), now: `{metadata: {uid: u}}`,
			want: "same configmap shop/x\n",
		},
		{
			name: "another has the owner's name", owners: is("p", nil),
			want: "create configmap shop/x\n  gets a new uid, because u is gone\n  without its owner, widget owner: another object has that name now\n",
		},
		{
			name: "the owner cannot be read", owners: is("", errors.New("forbidden")),
			want: "create configmap shop/x\n  gets a new uid, because u is gone\n  its owner, widget owner, cannot be read (forbidden): if it is gone, the garbage collector deletes this again\n",
		},
		{
			name: "the owner is put back, and there", owners: is("", nil), now: `{metadata: {uid: u}}`,
			ownerThen: `{metadata: {uid: o}, spec: {size: 1}}`, ownerNow: `{metadata: {uid: o}, spec: {size: 2}}`,
			want: "update configmap shop/x\n  add metadata.ownerReferences: null -> " + fmt.Sprintf(refersTo, "o") + "\n",
		},
		{
			name: "the owner is created anew", owners: is("", nil), now: owned,
			ownerThen: `{metadata: {uid: o}}`,
			want: `update configmap shop/x
  remove metadata.ownerReferences[uid=o]: {"apiVersion":"example.com/v1","kind":"Widget","name":"owner","uid":"o"} -> null
  add metadata.ownerReferences[uid="00000000-0000-0000-0000-000000000000"]: null -> {"apiVersion":"example.com/v1","kind":"Widget","name":"owner","uid":"00000000-0000-0000-0000-000000000000"}
  its owner, widget owner, is created anew: it gets that one's uid
`,
		},
		{
			name: "the owner is another one now, and put back", owners: is("p", nil), now: `{metadata: {uid: u}}`,
			ownerThen: `{metadata: {uid: o}}`, ownerNow: `{metadata: {uid: p}}`,
			want: "update configmap shop/x\n  add metadata.ownerReferences: null -> " + fmt.Sprintf(refersTo, "p") + "\n  its owner, widget owner, is another one now: it gets that one's uid\n",
		},
		{
			name: "the owner cannot be put back", owners: is("p", nil),
			ownerThen: `{metadata: {uid: o}}`, ownerNow: `{metadata: {uid: p, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [a]}}`,
			want: "refuse configmap shop/x\n  gets a new uid, because u is gone\n  its owner, widget owner, is another one now: it gets that one's uid\n  refused: its owner, widget.example.com shop/owner, cannot be put back\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			subjects := []restore.Subject{subject(t, configMaps, "x", owned, c.now), subject(t, widgets, "owner", c.ownerThen, c.ownerNow)}
			p := restore.Make(subjects, c.owners, restore.Options{})
			of := &restore.Plan{}
			for _, i := range p.Items {
				if i.Name == "x" {
					of.Items = append(of.Items, i)
				}
			}
			if diff := cmp.Diff(c.want, story(of)); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheOrder(t *testing.T) {
	owned := func(uid, owner, ownerUID string) string {
		return fmt.Sprintf(`{metadata: {uid: %s, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: %s, uid: %s}]}}`, uid, owner, ownerUID)
	}
	subjects := []restore.Subject{
		subject(t, widgets, "new", "", `{metadata: {uid: n}}`),
		subject(t, configMaps, "a", owned("ua", "b", "ub"), ""), // owned by b, owned by c
		subject(t, configMaps, "b", owned("ub", "c", "uc"), ""),
		subject(t, configMaps, "c", `{metadata: {uid: uc}}`, ""),
		subject(t, configMaps, "round", owned("ur", "about", "uo"), ""), // owned by each other
		subject(t, configMaps, "about", owned("uo", "round", "ur"), ""),
		subject(t, namespaces, "shop", `{metadata: {uid: us}}`, ""),
	}
	p := restore.Make(subjects, noOwners, restore.Options{Prune: true})
	at := map[string]int{}
	for n, i := range p.Items {
		at[i.Name] = n
	}
	if at["shop"] != 0 {
		t.Error("the namespace is not first")
	}
	if at["new"] != len(p.Items)-1 {
		t.Error("the deletion is not last")
	}
	if !(at["c"] < at["b"] && at["b"] < at["a"]) {
		t.Error("what is owned comes before its owner")
	}
}
