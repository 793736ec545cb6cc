package hashing_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/projections/audit/hashing"
)

var key = hashing.New([]byte("0123456789abcdef0123456789abcdef"))

// Every form in which a client sends or gets a secret: its value must not be in the line, and its hash must.
func TestSecretValuesAreHashed(t *testing.T) {
	custom := hashing.Fields{{"spec", "users", "*", "password"}, {"spec", "token"}, {"spec", "keys", "*"}}
	hash := key.Hash([]byte("hunter2"))
	for name, test := range map[string]struct {
		fields hashing.Fields
		body   string
		hashes int // how many times the hash is there
	}{
		"a Secret":           {hashing.Secrets, `{"kind":"Secret","data":{"a":"aHVudGVyMg=="},"stringData":{"b":"hunter2"}}`, 2},
		"a list of Secrets":  {hashing.Secrets, `{"kind":"SecretList","items":[{"data":{"a":"aHVudGVyMg=="}},{"data":{"a":"aHVudGVyMg=="}}]}`, 2},
		"a table of Secrets": {hashing.Secrets, `{"kind":"Table","rows":[{"cells":["a"],"object":{"data":{"a":"aHVudGVyMg=="}}}]}`, 1},
		"the annotation of kubectl": {hashing.Secrets,
			`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"stringData\":{\"a\":\"hunter2\"}}\n"}}}`, 1},
		"an annotation that is no JSON": {hashing.Secrets, `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2"}}}`, 1},
		"a merge patch":                 {hashing.Secrets, `{"stringData":{"a":"hunter2","b":null}}`, 1},
		"a strategic merge patch":       {custom, `{"spec":{"$patch":"replace","users":[{"$patch":"merge","name":"x","password":"hunter2"}]}}`, 1},
		"a directive of such a patch":   {custom, `{"spec":{"$deleteFromPrimitiveList/keys":["hunter2"],"$setElementOrder/keys":["hunter2"]}}`, 2},
		"a key like a directive":        {hashing.Secrets, `{"stringData":{"$patch":"hunter2"}}`, 1},
		"a JSON patch of a value":       {hashing.Secrets, `[{"op":"test","path":"/stringData/a","value":"hunter2"},{"op":"remove","path":"/data/a"}]`, 1},
		"a JSON patch of a part":        {hashing.Secrets, `[{"op":"add","path":"/stringData","value":{"a":"hunter2"}}]`, 1},
		"a JSON patch of the object":    {hashing.Secrets, `[{"op":"replace","path":"","value":{"stringData":{"a":"hunter2"}}}]`, 1},
		"a JSON patch of an item":       {custom, `[{"op":"add","path":"/spec/users/-","value":{"name":"x","password":"hunter2"}}]`, 1},
		"a JSON patch below a secret":   {hashing.Fields{{"spec"}}, `[{"op":"add","path":"/spec/a/b","value":"hunter2"}]`, 1},
		"a JSON patch of the annotation": {hashing.Secrets,
			`[{"op":"add","path":"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration","value":"{\"stringData\":{\"a\":\"hunter2\"}}"}]`, 1},
		"YAML":                  {hashing.Secrets, "kind: Secret\nstringData:\n  a: hunter2\n", 1},
		"another case":          {hashing.Secrets, `{"StringData":{"a":"hunter2"}}`, 1},
		"managed fields":        {custom, `{"metadata":{"managedFields":[{"manager":"m","fieldsV1":{"f:spec":{"f:keys":{"v:hunter2":{}}}}}]}}`, 1},
		"another form":          {custom, `{"spec":"hunter2"}`, 1},
		"another form, a list":  {custom, `{"spec":["hunter2"]}`, 1},
		"no object":             {custom, `"hunter2"`, 0},
		"neither JSON nor YAML": {hashing.Secrets, "{\"stringData\": {\"a\": \"hunter2\"", 0},
		"text behind it":        {hashing.Secrets, `{"stringData":{"a":"hunter2"}} hunter2`, 1},
		"a patch of no objects": {hashing.Secrets, `["hunter2"]`, 0},
	} {
		got := key.Body([]byte(test.body), test.fields)
		if !json.Valid(got) || bytes.ContainsAny(got, "\n") {
			t.Errorf("%s: %s is no line of JSON", name, got)
		}
		if bytes.Contains(got, []byte("hunter2")) || bytes.Contains(got, []byte("aHVudGVyMg")) {
			t.Errorf("%s: the secret is in %s", name, got)
		}
		if n := bytes.Count(got, []byte(hash)); n != test.hashes || !bytes.Contains(got, []byte(hashing.Prefix)) {
			t.Errorf("%s: the hash is there %d times, want %d: %s", name, n, test.hashes, got)
		}
		if again := key.Body(got, test.fields); test.hashes > 0 && !bytes.Equal(again, got) {
			t.Errorf("%s: hashed twice it is\n%s, once\n%s", name, again, got)
		}
	}
}

func TestTheRestOfABodyStays(t *testing.T) {
	for _, test := range []struct {
		name, body, want string
		fields           hashing.Fields
	}{
		{"what is beside a secret", `{"kind":"Secret", "type":"Opaque", "n":1.50, "metadata":{"name":"<a>"}}`, `{"kind":"Secret","metadata":{"name":"<a>"},"n":1.50,"type":"Opaque"}`, hashing.Secrets},
		{"null", `{"data":null,"stringData":{"a":null}}`, `{"data":null,"stringData":{"a":null}}`, hashing.Secrets},
		{"an operation without a value", `[{"from":"/data/a","op":"move","path":"/data/b"}]`, `[{"from":"/data/a","op":"move","path":"/data/b"}]`, hashing.Secrets},
		{"a body without secrets", "{\"b\": 1,\n \"a\": 2}", `{"b":1,"a":2}`, nil},
		{"YAML without secrets", "a: 1\n", `{"a":1}`, nil},
		{"text", "a\n\tb: [", `"a\n\tb: ["`, nil},
		{"bytes", "\xff\n\t: [", `"` + "\ufffd" + `\n\t: ["`, nil},
		{"nothing", " ", `null`, hashing.Secrets},
	} {
		if diff := cmp.Diff(test.want, string(key.Body([]byte(test.body), test.fields))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestFieldsAreEncoded(t *testing.T) {
	fields := hashing.Fields{{"a/b", "~1", "*"}, {"c"}, {}}
	if diff := cmp.Diff([]string{"", "a~1b/~01/*", "c"}, fields.Encode()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(hashing.Fields{{}, {"a/b", "~1", "*"}, {"c"}}, hashing.Decode(fields.Encode())); diff != "" {
		t.Error(diff)
	}
}

func TestHashesDependOnTheKey(t *testing.T) {
	other := hashing.New([]byte("another"))
	a := key.Hash([]byte("x"))
	if a != key.Hash([]byte("x")) || a == key.Hash([]byte("y")) || a == other.Hash([]byte("x")) || !hashing.IsHash(a) {
		t.Error(a)
	}
	if none := (*hashing.Key)(nil).Hash([]byte("x")); none != hashing.Prefix+strings.Repeat("0", 32) {
		t.Error(none)
	}
}

// Replicas that share a folder may start at once.
func TestOneKeyIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	hashes := make([]string, 8)
	var all sync.WaitGroup
	for i := range hashes {
		all.Go(func() {
			k, err := hashing.Load(dir, nil)
			if err != nil {
				t.Error(err)
				return
			}
			hashes[i] = k.Hash(nil)
		})
	}
	all.Wait()
	for _, h := range hashes {
		if h != hashes[0] {
			t.Errorf("hashes differ: %v", hashes)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	info, err := os.Stat(filepath.Join(dir, hashing.File))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestADamagedKeyIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, hashing.File), []byte("abcd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := hashing.Load(dir, nil); err == nil || !strings.Contains(err.Error(), "want 64 hexadecimal digits") {
		t.Error(err)
	}
}

// Whatever a client sends, the result is one line of JSON that hashing does not change again.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"data":{"a":"aGk="},"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`))
	f.Add([]byte("a: [b\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		got := key.Body(body, hashing.Secrets)
		if !json.Valid(got) || bytes.ContainsAny(got, "\n\r") {
			t.Errorf("%q becomes %q", body, got)
		}
	})
}

// A folder that cannot be written, here because the names of temporary files would be too long, needs no key. Replicas
// with the same secret have the same hashes, whether they can write the key or not.
func TestAKeyOfASecretNeedsNoFile(t *testing.T) {
	// The path of the key is as long as Linux takes, so the one of the temporary file beside it is too long, also for root.
	const longest = 4095
	dir := t.TempDir()
	for missing := longest - len("/"+hashing.File) - len(dir); missing > 0; missing = longest - len("/"+hashing.File) - len(dir) {
		name := missing - len("/")
		if name > 200 {
			name = min(200, name-len("/d"))
		}
		dir = filepath.Join(dir, strings.Repeat("d", name))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := hashing.Load(dir, nil); err == nil {
		t.Error("a random key that cannot be stored is used")
	}
	unwritten, err := hashing.Load(dir, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, hashing.File)); err == nil {
		t.Fatal("the folder can be written")
	}
	stored := t.TempDir()
	written, err := hashing.Load(stored, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	later, err := hashing.Load(stored, []byte("two")) // the authority was replaced
	if err != nil {
		t.Fatal(err)
	}
	other, err := hashing.Load(t.TempDir(), []byte("two"))
	if err != nil {
		t.Fatal(err)
	}
	want := written.Hash([]byte("x"))
	if unwritten.Hash([]byte("x")) != want || later.Hash([]byte("x")) != want || other.Hash([]byte("x")) == want {
		t.Errorf("hashes: %s, without a file %s, later %s, of another secret %s", want, unwritten.Hash([]byte("x")), later.Hash([]byte("x")), other.Hash([]byte("x")))
	}
}
