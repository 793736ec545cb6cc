package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/object/gotypes"
)

const item = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"x":"y"},"binaryData":{"z":"AP8="}}`

// A list that is made item by item has the bytes of one that apimachinery encodes whole.
func TestListsAreAsApimachineryEncodesThem(t *testing.T) {
	n := int64(7)
	meta := metav1.ListMeta{ResourceVersion: "5", Continue: "next", RemainingItemCount: &n}
	for _, count := range []int{0, 1, 300} {
		l, err := wire.NewList("ConfigMapList", "v1", meta, count*len(item))
		if err != nil {
			t.Fatal(err)
		}
		whole := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: meta}
		for range count {
			if err := l.Add([]byte(item)); err != nil {
				t.Fatal(err)
			}
			var m corev1.ConfigMap
			if err := json.Unmarshal([]byte(item), &m); err != nil {
				t.Fatal(err)
			}
			whole.Items = append(whole.Items, m)
		}
		length, write := l.Encoded()
		var got, want bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		if err := protobuf.NewSerializer(gotypes.Scheme, gotypes.Scheme).Encode(whole, &want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) || got.Len() != length {
			t.Errorf("of %d: %d bytes, said to be %d, want %d", count, got.Len(), length, want.Len())
		}
	}
}

// A list that is written item by item says the same as one that is encoded whole: the same bytes, except in CBOR, whose
// maps have no order.
func TestFramesAreAroundTheItems(t *testing.T) {
	const empty = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"items: []"},"items":[]}`
	for _, mediaType := range []string{negotiate.JSON, "pretty", negotiate.YAML, negotiate.CBOR} {
		for _, count := range []int{1, 2, 23, 24, 255, 256, 70000} {
			if count > 300 && mediaType != negotiate.CBOR {
				continue
			}
			item := item
			if count > 300 {
				item = `{"a":1}`
			}
			text := strings.TrimSuffix(empty, "]}") + strings.Repeat(","+item, count)[1:] + "]}"
			pretty := mediaType == "pretty"
			f, err := wire.NewFrame(mediaType, pretty, []byte(empty), "items", count)
			if err != nil {
				t.Fatal(err)
			}
			got := bytes.Clone(f.Head)
			for i := range count {
				if i > 0 {
					got = append(got, f.Between...)
				}
				one, err := f.Item([]byte(item))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, one...)
			}
			got = append(got, f.Tail...)
			var want bytes.Buffer
			switch mediaType {
			case negotiate.JSON:
				want.WriteString(text + "\n")
			case "pretty":
				if err := json.Indent(&want, []byte(text), "", "  "); err != nil {
					t.Fatal(err)
				}
			case negotiate.YAML:
				whole, err := wire.Encode(mediaType, []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				want.Write(whole)
			default:
				if got, _, err = wire.Decode(mediaType, got, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"}); err != nil {
					t.Fatal(err)
				}
				var is, should any
				if json.Unmarshal(got, &is) != nil || json.Unmarshal([]byte(text), &should) != nil || !reflect.DeepEqual(is, should) {
					t.Errorf("%d items in %s are not as they were", count, mediaType)
				}
				continue
			}
			if !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%d items in %s are\n%.2000s\nwant\n%.2000s", count, mediaType, got, want.Bytes())
			}
		}
	}
}

// What has no Go type cannot be an item.
func TestListsOfCustomKindsAreNoProtobuf(t *testing.T) {
	l, err := wire.NewList("WidgetList", "example.com/v1", metav1.ListMeta{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Add([]byte(`{"apiVersion":"example.com/v1","kind":"Widget"}`)); !protobuf.IsNotMarshalable(err) {
		t.Errorf("%v", err)
	}
}

// What is encoded can be decoded again, as what it was.
func TestFormsSayTheSame(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	for _, mediaType := range []string{negotiate.JSON, negotiate.YAML, negotiate.Protobuf, negotiate.CBOR} {
		encoded, err := wire.Encode(mediaType, []byte(item))
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := wire.Decode(mediaType, encoded, kind)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if json.Unmarshal(text, &got) != nil || json.Unmarshal([]byte(item), &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s", mediaType, text)
		}
	}
}

// Whatever the bytes: what can be decoded is JSON that can be encoded, and takes no more room than its
// form lets it.
func FuzzDecode(f *testing.F) {
	forms := []string{negotiate.YAML, negotiate.Protobuf, negotiate.CBOR}
	kinds := []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Event"}, {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		{Group: "example.com", Version: "v1", Kind: "Widget"}, {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"},
	}
	for form, mediaType := range forms {
		encoded, err := wire.Encode(mediaType, []byte(item))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(form), uint8(0), encoded)
	}
	f.Add(uint8(0), uint8(0), []byte("a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n"))
	f.Add(uint8(1), uint8(5), []byte("k8s\x00\x0a\x02v1\x12\x00"))
	f.Add(uint8(2), uint8(4), []byte("\xd9\xd9\xf7\xbf\x41a\x9f\x01\xf5\xfb\x3f\xf8\x00\x00\x00\x00\x00\x00\xff\xff"))
	f.Fuzz(func(t *testing.T, form, kind uint8, body []byte) {
		mediaType := forms[int(form)%len(forms)]
		text, _, err := wire.Decode(mediaType, body, kinds[int(kind)%len(kinds)])
		if err != nil {
			return
		}
		if !json.Valid(text) {
			t.Fatalf("no JSON: %q", text)
		}
		if mediaType != negotiate.YAML && len(text) > 4096+8*len(body) {
			t.Errorf("%d bytes became %d", len(body), len(text))
		}
		for _, other := range []string{negotiate.YAML, negotiate.Protobuf, negotiate.CBOR} {
			_, _ = wire.Encode(other, text) // what is no object has not all forms
		}
		_, _ = wire.DeleteOptions(mediaType, body)
		for _, delimited := range []bool{true, false} {
			_, _ = wire.AppendEvent([]byte("before"), mediaType, delimited, "ADDED", text)
		}
	})
}
