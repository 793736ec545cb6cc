package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/sdk"
)

func reviewing(f sdk.AdmissionFunc) sdk.Plugin[config] {
	return sdk.Plugin[config]{Name: "test", Version: "1", NewAdmission: func(context.Context, config, map[string][]byte) (sdk.Admission, error) { return f, nil }}
}

// reviews returns the answer of a configured plugin.
func reviews(t *testing.T, f sdk.AdmissionFunc, q *admissionpb.ReviewRequest) (*admissionpb.ReviewResponse, error) {
	t.Helper()
	i := start(t, reviewing(f))
	if _, err := i.Admission.Configure(t.Context(), &authorizerpb.ConfigureRequest{}); err != nil {
		t.Fatal(err)
	}
	return i.Admission.Review(t.Context(), q)
}

func TestVerdictsAreSaidAsTheyAreMeant(t *testing.T) {
	const allowed, refused = admissionpb.Verdict_VERDICT_ALLOWED, admissionpb.Verdict_VERDICT_REFUSED
	for _, c := range []struct {
		verdict sdk.Verdict
		want    *admissionpb.ReviewResponse
		text    string
	}{
		{sdk.Verdict{}, &admissionpb.ReviewResponse{Verdict: allowed}, "admit"},
		{sdk.Admit().Warn("a").Warn("b").Annotate("k", "v"), &admissionpb.ReviewResponse{Verdict: allowed, Warnings: []string{"a", "b"}, AuditAnnotations: map[string]string{"k": "v"}}, "admit"},
		{sdk.Refuse("no\xff"), &admissionpb.ReviewResponse{Verdict: refused, Code: 403, Reason: "Forbidden", Message: "no\uFFFD"}, "refuse: no\xff"},
		{sdk.Refuse("no").Status(422, "Invalid").CacheFor(time.Second), &admissionpb.ReviewResponse{Verdict: refused, Code: 422, Reason: "Invalid", Message: "no", CacheTtl: durationpb.New(time.Second)}, "refuse: no"},
		{sdk.Admit().CacheFor(-1), &admissionpb.ReviewResponse{Verdict: allowed, CacheTtl: durationpb.New(0)}, "admit"},
		{sdk.Patch([]byte("[]")), &admissionpb.ReviewResponse{Verdict: allowed, Change: &admissionpb.ReviewResponse_Patch{Patch: []byte("[]")}}, "change"},
		{sdk.Replace([]byte("{}")), &admissionpb.ReviewResponse{Verdict: allowed, Change: &admissionpb.ReviewResponse_Object{Object: []byte("{}")}}, "change"},
	} {
		if c.verdict.String() != c.text {
			t.Errorf("%q, want %q", c.verdict, c.text)
		}
		got, err := reviews(t, func(context.Context, *sdk.Review) (sdk.Verdict, error) { return c.verdict, nil }, &admissionpb.ReviewRequest{})
		if err != nil || !proto.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.text, got, err, c.want)
		}
	}
}

func TestAVerdictIsNotChangedByWhatIsMadeOfIt(t *testing.T) {
	base := sdk.Admit().Warn("a").Annotate("k", "v")
	one, two := base.Warn("b").Annotate("k", "1"), base.Warn("c").Annotate("k", "2")
	got, err := reviews(t, func(context.Context, *sdk.Review) (sdk.Verdict, error) { return one, nil }, &admissionpb.ReviewRequest{})
	if want := []string{"a", "b"}; err != nil || !cmp.Equal(got.GetWarnings(), want) || got.GetAuditAnnotations()["k"] != "1" {
		t.Errorf("%v, %v after %v was made", got, err, two)
	}
}

func TestAReviewHasAllThatIsSent(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	kind, resource := &admissionpb.Kind{Group: "g", Version: "v2", Kind: "Widget"}, &admissionpb.Resource{Group: "g", Version: "v2", Resource: "widgets", Subresource: "status"}
	q := &admissionpb.ReviewRequest{
		Uid: "u", Rule: "team/plugins/x", Stage: admissionpb.Stage_STAGE_MUTATION, Operation: admissionpb.Operation_OPERATION_UPDATE,
		Kind: kind, Resource: resource, RequestKind: &admissionpb.Kind{Group: "g", Version: "v1", Kind: "Widget"}, RequestResource: &admissionpb.Resource{Group: "g", Version: "v1", Resource: "widgets"},
		Namespace: "n", Name: "w", User: &authorizerpb.User{Name: "alice", Uid: "1", Groups: []string{"a"}, Extra: map[string]*authorizerpb.Values{"k": {Values: []string{"v"}}}},
		Object: []byte(`{"a":1}`), OldObject: []byte(`{"a":2}`), DryRun: true, Options: []byte(`{}`), NamespaceLabels: map[string]string{"l": "v"}, Time: timestamppb.New(at),
	}
	want := sdk.Review{
		UID: "u", Rule: "team/plugins/x", Stage: sdk.Mutation, Operation: sdk.Update,
		Kind: sdk.Kind{Group: "g", Version: "v2", Kind: "Widget"}, Resource: sdk.Resource{Group: "g", Version: "v2", Resource: "widgets", Subresource: "status"},
		RequestKind: sdk.Kind{Group: "g", Version: "v1", Kind: "Widget"}, RequestResource: sdk.Resource{Group: "g", Version: "v1", Resource: "widgets"},
		Namespace: "n", Name: "w", NamespaceLabels: map[string]string{"l": "v"}, User: sdk.User{Name: "alice", UID: "1", Groups: []string{"a"}, Extra: map[string][]string{"k": {"v"}}},
		Object: []byte(`{"a":1}`), OldObject: []byte(`{"a":2}`), DryRun: true, Options: []byte(`{}`), Time: at,
	}
	var got sdk.Review
	if _, err := reviews(t, func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) { got = *r; return sdk.Admit(), nil }, q); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatGoesWrongInAReviewIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		review sdk.AdmissionFunc
		code   codes.Code
		text   string
	}{
		"an error": {func(context.Context, *sdk.Review) (sdk.Verdict, error) { return sdk.Admit(), errors.New("no idea") }, codes.Unknown, "no idea"},
		"a panic":  {func(context.Context, *sdk.Review) (sdk.Verdict, error) { panic("boo") }, codes.Internal, "panic: boo"},
		"no object to decode": {func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
			return sdk.Admit(), r.DecodeOld(&struct{}{})
		}, codes.Unknown, "the review has no old object"},
		"an object of another shape": {func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) { return sdk.Admit(), r.Decode(&[]string{}) }, codes.Unknown, "the object: json: cannot unmarshal object"},
		"a change of no pointer":     {func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) { return r.Change(7) }, codes.Unknown, "Change wants a pointer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := reviews(t, c.review, &admissionpb.ReviewRequest{Object: []byte(`{}`)})
			if status.Code(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
		})
	}
}

type part struct {
	Name  string            `json:"name"`
	Size  int               `json:"size"`
	Notes map[string]string `json:"notes,omitempty"`
}

type known struct {
	Spec struct {
		Replicas *int   `json:"replicas,omitempty"`
		Parts    []part `json:"parts"`
		Main     part   `json:"main"`
	} `json:"spec"`
	Metadata struct {
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
}

// A struct of a plugin has some of the fields only. What it does not know stays.
func TestAChangeKeepsWhatTheStructDoesNotKnow(t *testing.T) {
	three := 3
	for name, c := range map[string]struct {
		object string
		change func(*known)
		want   string
	}{
		"nothing":                           {`{"x":1}`, func(*known) {}, `{"x":1}`},
		"a label":                           {`{"metadata":{"name":"n","labels":{"a":"b"}}}`, func(k *known) { k.Metadata.Labels["c"] = "d" }, `{"metadata":{"name":"n","labels":{"a":"b","c":"d"}}}`},
		"the first label":                   {`{"metadata":{"name":"n"}}`, func(k *known) { k.Metadata.Labels = map[string]string{"a/b~c": "d"} }, `{"metadata":{"name":"n","labels":{"a/b~c":"d"}}}`},
		"the last label":                    {`{"metadata":{"name":"n","labels":{"a/b~c":"b"}}}`, func(k *known) { delete(k.Metadata.Labels, "a/b~c") }, `{"metadata":{"name":"n"}}`},
		"a field that is absent":            {`{"spec":{"x":1}}`, func(k *known) { k.Spec.Replicas = &three }, `{"spec":{"x":1,"replicas":3}}`},
		"in an absent object":               {`{"x":1}`, func(k *known) { k.Spec.Main.Size = 2 }, `{"x":1,"spec":{"parts":null,"main":{"name":"","size":2}}}`},
		"the zero value of an absent field": {`{"spec":{"main":{"x":1}}}`, func(k *known) { k.Spec.Main.Size = 2 }, `{"spec":{"main":{"x":1,"size":2}}}`},
		"an element":                        {`{"spec":{"parts":[{"name":"a","x":1},{"name":"b","x":2}]}}`, func(k *known) { k.Spec.Parts[1].Size = 5 }, `{"spec":{"parts":[{"name":"a","x":1},{"name":"b","x":2,"size":5}]}}`},
		"an element is added":               {`{"spec":{"parts":[{"name":"a","x":1}]}}`, func(k *known) { k.Spec.Parts = append(k.Spec.Parts, part{Name: "b"}) }, `{"spec":{"parts":[{"name":"a","x":1},{"name":"b","size":0}]}}`},
		"an element is put first":           {`{"spec":{"parts":[{"name":"a","x":1}]}}`, func(k *known) { k.Spec.Parts = append([]part{{Name: "b"}}, k.Spec.Parts...) }, `{"spec":{"parts":[{"name":"b","size":0},{"name":"a","x":1}]}}`},
		"an element is removed":             {`{"spec":{"parts":[{"name":"a","x":1},{"name":"b","x":2},{"name":"c","x":3}]}}`, func(k *known) { k.Spec.Parts = append(k.Spec.Parts[:1], k.Spec.Parts[2]) }, `{"spec":{"parts":[{"name":"a","x":1},{"name":"c","x":3}]}}`},
		"large numbers stay":                {`{"x":12345678901234567890,"metadata":{}}`, func(k *known) { k.Metadata.Labels = map[string]string{"a": "b"} }, `{"x":12345678901234567890,"metadata":{"labels":{"a":"b"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changed(t, c.object, c.change); !equal(t, got, c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// changed returns the object after a change of its struct.
func changed(t *testing.T, object string, change func(*known)) string {
	t.Helper()
	answer, err := reviews(t, func(_ context.Context, r *sdk.Review) (sdk.Verdict, error) {
		var k known
		if err := r.Decode(&k); err != nil {
			return sdk.Verdict{}, err
		}
		change(&k)
		return r.Change(&k)
	}, &admissionpb.ReviewRequest{Object: []byte(object)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := conformance.Changed([]byte(object), answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func equal(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return cmp.Equal(x, y)
}

// Whatever a plugin does to the struct, the changed object decodes to that struct, and unknown fields of objects that
// are not removed stay.
func TestAChangeIsTheChangeOfTheStruct(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var verdict sdk.Verdict
	i := start(t, reviewing(func(context.Context, *sdk.Review) (sdk.Verdict, error) { return verdict, nil }))
	if _, err := i.Admission.Configure(t.Context(), &authorizerpb.ConfigureRequest{}); err != nil {
		t.Fatal(err)
	}
	parts := func() (list []part) {
		for n := range random.IntN(5) {
			p := part{Name: string(rune('a' + random.IntN(3))), Size: n % 2}
			if random.IntN(2) == 0 {
				p.Notes = map[string]string{string(rune('a' + random.IntN(3))): "x"}
			}
			list = append(list, p)
		}
		return list
	}
	object := func() (k known) {
		k.Spec.Parts, k.Spec.Main = parts(), part{Size: random.IntN(2)}
		if random.IntN(2) == 0 {
			k.Metadata.Labels = map[string]string{"a": string(rune('a' + random.IntN(2)))}
		}
		return k
	}
	for range 2000 {
		was, is := object(), object()
		text, err := json.Marshal(was)
		if err != nil {
			t.Fatal(err)
		}
		stored := strings.Replace(string(text), `{"name"`, `{"extra":1,"name"`, -1)
		r := &sdk.Review{Object: []byte(stored)}
		if verdict, err = r.Change(&is); err != nil {
			t.Fatal(err)
		}
		answer, err := i.Admission.Review(t.Context(), &admissionpb.ReviewRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := conformance.Changed([]byte(stored), answer)
		if err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
		var k known
		if err := json.Unmarshal(got, &k); err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(is)
		if back, _ := json.Marshal(k); string(back) != string(want) {
			t.Fatalf("%s became %s, want %s", stored, back, want)
		}
	}
}

func TestAProgramMayServeBoth(t *testing.T) {
	p := reviewing(func(context.Context, *sdk.Review) (sdk.Verdict, error) { return sdk.Refuse("x"), nil })
	p.New = func(context.Context, config, map[string][]byte) (sdk.Authorizer, error) {
		return sdk.Func(func(context.Context, *sdk.Request) (sdk.Decision, error) { return sdk.NoOpinion(), nil }), nil
	}
	i := start(t, p)
	d, err := i.Describe(t.Context())
	if err != nil || !d.Authorizer || !d.Admission {
		t.Errorf("%+v, %v", d, err)
	}
}
