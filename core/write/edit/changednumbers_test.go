package edit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func say(found []Number) string {
	var said []string
	for _, n := range found {
		said = append(said, fmt.Sprintf("%v=%s→%s", n.Path, n.Sent, n.Stored()))
	}
	return strings.Join(said, " ")
}

// TestNumbersThatChange says of each number whether it would be stored as another, in JSON and in YAML.
func TestNumbersThatChange(t *testing.T) {
	for sent, stored := range map[string]string{
		"9007199254740993.5": "9007199254740994", "9007199254740993.0": "9007199254740992", "0.30000000000000001": "0.3",
		"18446744073709551617": "18446744073709552000", "-9223372036854775809": "-9223372036854776000",
		"3.141592653589793238": "3.141592653589793", "1e-400": "0", "1.00000000000000000000e0": "", "9007199254740993e0": "9007199254740992",
		"0.1": "", "1e3": "", "1E+3": "", "12.0": "", "9223372036854775807": "", "-9223372036854775808": "", "9223372036854775808": "9223372036854776000",
		"0.30000000000000004": "", "1e21": "", "1e-7": "", "0e99999": "", "-0.0": "", "100000000000000000000000": "",
		"0.000000000000000000000000001": "", "123456789012345.1": "",
	} {
		want := ""
		if stored != "" {
			want = "[spec l 1]=" + sent + "→" + stored
		}
		if got := say(InJSON([]byte(`{"a\\\"":"12345678901234567890.5","spec":{"l":[1,` + sent + `]}}`))); got != want {
			t.Errorf("JSON: %s, want %q", got, want)
		}
		if got := say(InYAML([]byte("a: \"12345678901234567890.5\"\nb: 12345678901234567890.5x\nspec:\n  l:\n  - 1\n  - " + sent + "\n"))); got != want {
			t.Errorf("YAML: %s, want %q", got, want)
		}
	}
}

func TestNumbersInPatches(t *testing.T) {
	got := say(InPatch([]byte(`[{"op":"test","path":"/spec/a","value":0.30000000000000001},{"op":"add","path":"/spec/l~1m/-","value":{"b":[0.30000000000000001]}}]`)))
	if want := "[spec l/m - b 0]=0.30000000000000001→0.3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNumbersInYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: &x {b: 0.30000000000000001}\nc: *x\nd: {<<: *x}":                            "[a b]=0.30000000000000001→0.3 [c b]=0.30000000000000001→0.3 [d b]=0.30000000000000001→0.3",
		"a: +9_007_199_254_740_993.5":                                                   "[a]=9007199254740993.5→9007199254740994",
		"a: 0xffffffffffffffff\nb: 0o17777777777777777777":                              "",
		"a: 12345678901234567890.5 # x\nb: 2026-01-01":                                  "[a]=12345678901234567890.5→12345678901234567000",
		"n: 0.30000000000000001\n1.50: 0.30000000000000001\n\"y\": 0.30000000000000001": "[1.5]=0.30000000000000001→0.3 [false]=0.30000000000000001→0.3 [y]=0.30000000000000001→0.3",
		"a: .nan\nb: 1e4000\nc: ................":                                       "",
	} {
		if got := say(InYAML([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// FuzzNumbersAreStoredAsSent holds that a number that is not found is what decoding it makes.
func FuzzNumbersAreStoredAsSent(f *testing.F) {
	for _, seed := range []string{"1", "0.1", "1e3", "9007199254740993.5", "123456789012345678", "1e-400", "1e400", "-0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		var n json.Number
		if json.Unmarshal([]byte(sent), &n) != nil || strings.HasPrefix(strings.TrimSpace(sent), `"`) {
			return
		}
		var x any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(sent), &x) != nil || x == nil {
			return
		}
		stored, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if same := normal(n.String()) == normal(string(stored)); same != (InJSON([]byte(sent)) == nil) {
			t.Errorf("%s is stored as %s", sent, stored)
		}
		if _, err := yaml.YAMLToJSON([]byte(sent)); err == nil && len(InYAML([]byte(sent))) > len(InJSON([]byte(sent))) {
			t.Errorf("%s changes as YAML alone", sent)
		}
	})
}

func BenchmarkInJSON(b *testing.B) {
	text := []byte(`{"metadata":{"uid":"9e12bfb3-0000-4a51-a9f5-1c0c1f2e7d7e","labels":{` + strings.Repeat(`"app.kubernetes.io/name":"some-name-of-an-application",`, 100) + `"a":"b"}},"spec":{"replicas":3}}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		InJSON(text)
	}
}
