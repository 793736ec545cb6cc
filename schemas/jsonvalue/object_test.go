package jsonvalue_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"stele.dev/stele/schemas/jsonvalue"
)

// texts are JSON, or nearly: each kind of value, of mistake, of white space.
var texts = []string{
	`{}`, ` { } `, `null`, `[]`, `"a"`, `1`, ``, `{`, `}`, `{}x`, `{}{}`, "{}\x00", "\ufeff{}",
	`{"a":1}`, `{"a":1,}`, `{"a":1 "b":2}`, `{"a"}`, `{"a":}`, `{a:1}`, `{'a':1}`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, `{"a":1,"\u0061":2}`, `{"A":1,"a":2}`, `{"":1}`,
	`{"a":[]}`, `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":[,1]}`, `{"a":[1,"b",{"c":[null,true,false]}]}`, `{"a":[}`, "\t{\n\"a\"\r:\t1 ,\n \"b\" : [ 1 , 2 ] }\r\n ", "{\"a\":\v1}", "{\"a\":\u00a01}",
	`{"a":true}`, `{"a":tru}`, `{"a":truex}`, `{"a":True}`, `{"a":nul}`, `{"a":NaN}`, `{"a":Infinity}`,
	`{"a":0}`, `{"a":-0}`, `{"a":00}`, `{"a":01}`, `{"a":-01}`, `{"a":-}`, `{"a":+1}`, `{"a":1.}`, `{"a":.5}`, `{"a":0.5}`, `{"a":-0.0}`, `{"a":1e3}`, `{"a":1E+3}`, `{"a":1e-3}`, `{"a":1e}`, `{"a":1e+}`, `{"a":1.5e3}`,
	`{"a":9223372036854775807}`, `{"a":9223372036854775808}`, `{"a":-9223372036854775808}`, `{"a":-9223372036854775809}`, `{"a":1e308}`, `{"a":1e309}`, `{"a":1e-400}`, `{"a":0x1}`, `{"a":1_000}`, `{"a":100000000000000000000000000000}`,
	`{"a":"\n\t\"\\\/\b\f\r"}`, `{"a":"\u00e9\ud83d\ude00"}`, `{"a":"\ud800"}`, `{"a":"\ud800\u0061"}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\`, `{"a":"`, `{"a":"\"}`, `{"a":"é€😀"}`, "{\"a\":\"\xff\"}", "{\"\xff\":1}", "{\"a\":\"\\n\xff\"}", "{\"a\":\"\n\"}", "{\"a\":\"\x7f\"}", "{\"a\":\"\x1f\"}",
	strings.Repeat(`{"a":`, 199) + "1" + strings.Repeat("}", 199), strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), strings.Repeat(`{"a":[`, 6000) + strings.Repeat("]}", 6000),
	`{"large":"` + strings.Repeat("x", 70_000) + `"}`, `{"large":` + strings.Repeat(" ", 70_000) + `1`,
	`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"b":"c"}},"spec":{"size":12,"ratio":1.5,"tags":["x","y"],"deep":{"er":[{"on":true,"off":null}]}}}`,
}

// Objects are decoded as sigs.k8s.io/json decodes them, with its errors.
func TestObjectsAreDecodedAsByKubernetes(t *testing.T) {
	for _, text := range texts {
		agrees(t, text)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		agrees(t, mutated(random, texts[random.IntN(len(texts))]))
	}
}

const bytesOfJSON = "{}[]\":,0123456789.eE-+\\ \ntfnu\x00\xffa"

// mutated returns a text with a few bytes changed, cut out or copied.
func mutated(random *rand.Rand, text string) string {
	b := []byte(text)
	for range 1 + random.IntN(3) {
		if len(b) == 0 || len(b) > 1000 {
			break
		}
		i := random.IntN(len(b))
		switch random.IntN(3) {
		case 0:
			b[i] = bytesOfJSON[random.IntN(len(bytesOfJSON))]
		case 1:
			b = append(b[:i], b[min(len(b), i+1+random.IntN(4)):]...)
		default:
			b = append(b[:i], append([]byte(string(b[i:min(len(b), i+1+random.IntN(8))])), b[i:]...)...)
		}
	}
	return string(b)
}

func FuzzObjectsAreDecodedAsByKubernetes(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(agrees)
}

func agrees(t *testing.T, text string) {
	t.Helper()
	var want map[string]any
	wantErr := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &want)
	got, err := jsonvalue.UnmarshalObject([]byte(text))
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(err, wantErr) {
		t.Fatalf("%q: %v, %v; want %v, %v", text, got, err, want, wantErr)
	}
	var strict map[string]any
	wantTwice, wantErr := kjson.UnmarshalStrict([]byte(text), &strict)
	if halves, err := jsonvalue.UnmarshalObject([]byte(text[:len(text)/2]), []byte(text[len(text)/2:])); !reflect.DeepEqual(halves, got) || (err == nil) != (wantErr == nil) {
		t.Fatalf("%q in halves: %v, %v; want %v", text, halves, err, got)
	}
	got, twice, err := jsonvalue.UnmarshalObjectStrict([]byte(text))
	if !reflect.DeepEqual(got, strict) || !reflect.DeepEqual(err, wantErr) || len(twice) != len(wantTwice) {
		t.Fatalf("strictly %q: %v, %q, %v; want %v, %q, %v", text, got, twice, err, strict, wantTwice, wantErr)
	}
}

// widget is an object as clients send it.
const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w-000001","namespace":"default","labels":{"app":"x","bucket":"b1"}},"spec":{"size":12,"color":"blue","tags":["alpha","beta","idx-7"],"payload":"Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat."},"status":{"phase":"Ready","observed":3}}`

func BenchmarkUnmarshalObject(b *testing.B) {
	text := []byte(widget)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := jsonvalue.UnmarshalObjectStrict(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshalByKubernetes(b *testing.B) {
	text := []byte(widget)
	b.ReportAllocs()
	for b.Loop() {
		var object map[string]any
		if _, err := kjson.UnmarshalStrict(text, &object); err != nil {
			b.Fatal(err)
		}
	}
}
