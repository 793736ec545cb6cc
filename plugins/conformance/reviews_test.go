package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/sdk"
	"stele.dev/stele/plugins/sdk/admissiontest"
)

func admission(f sdk.AdmissionFunc) *conformance.Subject {
	p := sdk.Plugin[config]{Name: "test", Version: "1", NewAdmission: func(context.Context, config, map[string][]byte) (sdk.Admission, error) { return f, nil }}
	return &conformance.Subject{Start: admissiontest.InProcess(p)}
}

// failedReviews returns the checks that an admission plugin does not pass, and why.
func failedReviews(t *testing.T, s *conformance.Subject) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, c := range conformance.AdmissionChecks() {
		if err := c.Run(t.Context(), s); err != nil {
			all[c.Name] = err.Error()
		}
	}
	return all
}

type thing struct {
	Metadata struct {
		Name   string            `json:"name,omitempty"`
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
}

// labelled is a plugin that sets a label.
func labelled(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
	var o thing
	if r.Stage != sdk.Mutation || r.Operation != sdk.Create || r.Decode(&o) != nil {
		return sdk.Admit(), nil
	}
	if o.Metadata.Labels == nil {
		o.Metadata.Labels = map[string]string{}
	}
	o.Metadata.Labels["owner"] = r.User.Name
	return r.Change(&o)
}

func TestAnAdmissionPluginThatKeepsAllPassesAll(t *testing.T) {
	if got := failedReviews(t, admission(labelled)); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// Each plugin violates one rule, which the checks must find.
func TestWhatIsBrokenInAnAdmissionPluginIsFound(t *testing.T) {
	var calls atomic.Int64
	mutating := func(f func(r *sdk.Review) sdk.Verdict) sdk.AdmissionFunc {
		return func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
			if r.Stage != sdk.Mutation || len(r.Object) == 0 {
				return sdk.Admit(), nil
			}
			return f(r), nil
		}
	}
	for _, c := range []struct {
		name         string
		review       sdk.AdmissionFunc
		check, wrong string
	}{
		{"it changes what is final", func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
			if r.Stage == sdk.Validation {
				return sdk.Patch([]byte("[]")), nil
			}
			return sdk.Admit(), nil
		}, "in the stage mutation only", "STAGE_VALIDATION"},
		{"it changes what is deleted", func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
			if r.Stage == sdk.Mutation {
				return sdk.Patch([]byte("[]")), nil
			}
			return sdk.Admit(), nil
		}, "in the stage mutation only", "which is a delete"},
		{"its patch is none", mutating(func(*sdk.Review) sdk.Verdict { return sdk.Patch([]byte("{}")) }), "its changes apply", "no JSON Patch"},
		{"its patch does not apply", mutating(func(*sdk.Review) sdk.Verdict { return sdk.Patch([]byte(`[{"op":"remove","path":"/nothing"}]`)) }), "its changes apply", "does not apply"},
		{"its object is none", mutating(func(*sdk.Review) sdk.Verdict { return sdk.Replace([]byte(`[]`)) }), "its changes apply", "no object"},
		{"it renames", mutating(func(*sdk.Review) sdk.Verdict {
			return sdk.Patch([]byte(`[{"op":"add","path":"/metadata/name","value":"another"}]`))
		}), "keep its identity", "another object"},
		{"it changes the kind", mutating(func(*sdk.Review) sdk.Verdict {
			return sdk.Patch([]byte(`[{"op":"add","path":"/kind","value":"Other"}]`))
		}), "keep its identity", "another object"},
		{"it grows", mutating(func(r *sdk.Review) sdk.Verdict {
			var o map[string]any
			_ = json.Unmarshal(r.Object, &o)
			text, _ := o["more"].(string)
			return sdk.Patch(fmt.Appendf(nil, `[{"op":"add","path":"/more","value":"%sx"}]`, text))
		}), "it does not change again", "and of that"},
		{"it refuses its own work", mutating(func(r *sdk.Review) sdk.Verdict {
			if strings.Contains(string(r.Object), "mine") {
				return sdk.Refuse("it is mine")
			}
			return sdk.Patch([]byte(`[{"op":"add","path":"/mine","value":1}]`))
		}), "it does not change again", "refuses what it made itself"},
		{"it counts", mutating(func(r *sdk.Review) sdk.Verdict {
			return sdk.Patch(fmt.Appendf(nil, `[{"op":"add","path":"/count","value":%d}]`, calls.Add(1)))
		}), "100 times", "and later with"},
		{"it fails on what it does not know", func(context.Context, *sdk.Review) (sdk.Verdict, error) {
			return sdk.Admit(), errors.New("what is this")
		}, "1 MiB", "what is this"},
		{"it decodes what a delete does not have", func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
			return sdk.Admit(), r.Decode(new(any))
		}, "in the stage mutation only", "the review of delete things in the stage mutation: rpc error: code = Unknown desc = the review of a delete has no object; DecodeOld reads the stored one"},
		{"it panics when something is missing", func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
			if r.Operation == "" {
				panic("no operation")
			}
			return sdk.Admit(), nil
		}, "lack everything", "panic: no operation"},
		{"it refuses with a code of a success", func(context.Context, *sdk.Review) (sdk.Verdict, error) { return sdk.Refuse("").Status(200, ""), nil }, "1 MiB", "none of an error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := failedReviews(t, admission(c.review))
			for check, wrong := range got {
				if strings.Contains(check, c.check) && strings.Contains(wrong, c.wrong) {
					return
				}
			}
			t.Errorf("%q is not said of %q, but %v", c.wrong, c.check, got)
		})
	}
}

func TestAReviewTableIsPlayed(t *testing.T) {
	table, err := conformance.ParseTable([]byte(`
reviews:
- {name: labelled, stage: mutation, user: alice, resource: things, object: {apiVersion: g/v1, kind: Thing, metadata: {name: x}}, expect: admit, becomes: {apiVersion: g/v1, kind: Thing, metadata: {name: x, labels: {owner: alice}}}}
- {name: not as it says, stage: mutation, user: bob, resource: things, object: {apiVersion: g/v1, kind: Thing, metadata: {name: x}}, expect: admit, becomes: {apiVersion: g/v1, kind: Thing, metadata: {name: x, labels: {owner: alice}}}}
- {name: changed in silence, stage: mutation, user: bob, resource: things, object: {apiVersion: g/v1, kind: Thing, metadata: {name: x}}, expect: admit}
- {name: deleted, operation: DELETE, resource: things, oldObject: {apiVersion: v1, kind: Thing, metadata: {name: x, namespace: shop}}, expect: refuse, message: ^keep v1 shop/x, warnings: [careful]}
- {name: another message, operation: DELETE, resource: things, oldObject: {apiVersion: v1, kind: Thing}, expect: refuse, message: nothing of that}
- {name: another warning, operation: DELETE, resource: things, oldObject: {apiVersion: v1, kind: Thing}, expect: refuse, warnings: [reckless]}
- {name: broken, operation: UPDATE, resource: things, object: {apiVersion: v1, kind: Thing}, oldObject: {apiVersion: v1, kind: Thing}, expect: error, message: out of order}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := admission(func(ctx context.Context, r *sdk.Review) (sdk.Verdict, error) {
		switch r.Operation {
		case sdk.Delete:
			return sdk.Refuse("keep " + r.Kind.Version + " " + r.Namespace + "/" + r.Name).Warn("be careful"), nil
		case sdk.Update:
			return sdk.Admit(), errors.New("out of order")
		}
		return labelled(ctx, r)
	})
	results, err := table.Play(t.Context(), table.Subject(s.Start))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		wrong, _, _ := strings.Cut(r.Wrong, " {")
		got = append(got, fmt.Sprintf("%s: %t %s %s", r.Name, r.Passed, r.Verdict, wrong))
	}
	want := []string{
		"labelled: true admit ", "not as it says: false admit want the object", "changed in silence: false admit want the object",
		"deleted: true refuse ", `another message: false refuse want a message that matches "nothing of that"`, `another warning: false refuse want a warning that matches "reckless"`,
		"broken: true error ",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReviewTablesAreRefusedThatSayTooLittleOrTooMuch(t *testing.T) {
	const object = "object: {apiVersion: v1, kind: Thing}"
	for _, c := range []struct{ table, want string }{
		{"reviews: [{resource: things, " + object + "}]", "review 1: expect is missing"},
		{"reviews: [{resource: things, " + object + ", expect: allow}]", `"allow" is not one of admit, refuse and error`},
		{"reviews: [{" + object + ", expect: admit}]", "resource is missing"},
		{"reviews: [{resource: things, expect: admit}]", "a CREATE has an object"},
		{"reviews: [{resource: things, operation: UPDATE, " + object + ", expect: admit}]", "an UPDATE both"},
		{"reviews: [{resource: things, operation: PATCH, " + object + ", expect: admit}]", `"PATCH" is not CREATE`},
		{"reviews: [{resource: things, stage: commit, " + object + ", expect: admit}]", `"commit" is not mutation`},
		{"reviews: [{resource: things, object: {kind: Thing}, expect: admit}]", "no apiVersion"},
		{"reviews: [{resource: things, " + object + ", expect: admit, becomes: {}}]", "stage mutation"},
		{"reviews: [{resource: things, " + object + ", expect: admit, message: (}]", "message: error parsing regexp"},
		{"reviews: [{name: a, resource: things, " + object + ", expect: admit}]\ncases: [{name: a, verb: get, path: /, expect: allow}]", `two cases are called "a"`},
	} {
		if _, err := conformance.ParseTable([]byte(c.table)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.table, err, c.want)
		}
	}
}
