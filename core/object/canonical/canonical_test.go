package canonical_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/canonical"
)

func TestObjectPutsKeysInOneOrder(t *testing.T) {
	got, err := canonical.Object("example.com/v1", "Widget", &metav1.ObjectMeta{Name: "a", Labels: map[string]string{"z": "1", "b": "2"}},
		map[string]any{"status": json.RawMessage(`{"ready":true}`), "kind": "ignored", "spec": map[string]any{"b": int64(1), "a": []any{1.5, nil, false, "x"}}})
	want := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"b":"2","z":"1"}},"spec":{"a":[1.5,null,false,"x"],"b":1},"status":{"ready":true}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

// Metadata is encoded as its type is.
func TestMetadataIsAsItsTypeIsEncoded(t *testing.T) {
	at := metav1.Unix(1_700_000_000, 0)
	for _, entries := range [][]metav1.ManagedFieldsEntry{
		nil, {}, {{}},
		{{Manager: `a"b<é`, Operation: "Apply", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`), Subresource: "status"}, {Subresource: "x"}, {Time: &at}, {FieldsV1: &metav1.FieldsV1{}}},
	} {
		zone, seconds, yes := metav1.NewTime(at.In(time.FixedZone("", 3600))), int64(0), true
		for _, meta := range []*metav1.ObjectMeta{{ManagedFields: entries}, {Name: "a", CreationTimestamp: at, ManagedFields: entries},
			{GenerateName: `a<"`, Namespace: "é\u2028", SelfLink: "/", UID: "u", ResourceVersion: "7", Generation: -1, CreationTimestamp: zone,
				DeletionTimestamp: &metav1.Time{}, DeletionGracePeriodSeconds: &seconds, Labels: map[string]string{"b": "\xff", "a": "<", "": ""},
				Annotations: map[string]string{"n\n": "x"}, OwnerReferences: []metav1.OwnerReference{{Kind: "<", Controller: &yes}, {}},
				Finalizers: []string{"b", "a&"}, ManagedFields: entries},
			{DeletionTimestamp: &zone, Labels: map[string]string{}, OwnerReferences: []metav1.OwnerReference{}, Finalizers: []string{}},
		} {
			var text bytes.Buffer
			e := json.NewEncoder(&text)
			e.SetEscapeHTML(false)
			if err := e.Encode(meta); err != nil {
				t.Fatal(err)
			}
			got, err := canonical.Object("v1", "K", meta, nil)
			if want := `{"apiVersion":"v1","kind":"K","metadata":` + string(bytes.TrimSpace(text.Bytes())) + "}"; err != nil || string(got) != want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, want)
			}
		}
	}
}

// Values are equal if their encodings are.
func TestEqualValuesAreEncodedAlike(t *testing.T) {
	var values []any
	for _, text := range []string{"null", "true", "false", "1", "1.0", "1.5", "-0.0", "0", "9007199254740993", `""`, `"a"`, `"é"`, `"\u00e9"`, `"\xff"`, `"\ufffd"`,
		"{}", `{"a":1}`, `{"a":1.0}`, `{"a":null}`, `{"b":1}`, `{"a":1,"b":[1,{"c":"x"}]}`, `{"b":[1,{"c":"x"}],"a":1}`, `{"a":1,"b":[1,{"c":"y"}]}`,
		"[]", "[1]", "[1,2]", "[2,1]", "[[]]", "[{}]", "[null]"} {
		var value any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value); err == nil {
			values = append(values, value)
		}
	}
	values = append(values, json.RawMessage(`{"a":1}`), "\xff")
	for _, a := range values {
		for _, b := range values {
			x, _ := canonical.Value(a)
			y, _ := canonical.Value(b)
			if got, want := canonical.Equal(a, b), bytes.Equal(x, y); got != want {
				t.Errorf("%s and %s: %t", x, y, got)
			}
		}
	}
}

// Whatever decodes, encodes as encoding/json would have it without escapes for HTML.
func FuzzValueAgreesWithEncodingJSON(f *testing.F) {
	f.Add([]byte(`{"b":[1,-2.5e30,"<&>\u2028\u0000é"],"a":null}`))
	f.Add([]byte(`"\ud800"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v any
		if kjson.UnmarshalCaseSensitivePreserveInts(data, &v) != nil {
			t.Skip()
		}
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		want := bytes.TrimSpace(text.Bytes())
		got, err := canonical.Value(v)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
	})
}

func BenchmarkObject(b *testing.B) {
	text := `{"size":12,"color":"blue","tags":["alpha","beta","idx-7"],"payload":"Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat."}`
	var spec any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &spec); err != nil {
		b.Fatal(err)
	}
	meta := &metav1.ObjectMeta{Name: "w-1", Namespace: "default", UID: "0b8a1f6e-6f0c-4b56-a8a5-000000000001", CreationTimestamp: metav1.Now(), Labels: map[string]string{"app": "x", "bucket": "b1"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canonical.Object("example.com/v1", "Widget", meta, map[string]any{"spec": spec}); err != nil {
			b.Fatal(err)
		}
	}
}
