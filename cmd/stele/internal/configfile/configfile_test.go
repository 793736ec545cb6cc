package configfile_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"stele.dev/stele/cmd/stele/internal/configfile"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// options are flags of all types that serve has.
type options struct {
	text, other string
	yes         bool
	number      int
	chance      float64
	wait        time.Duration
	hosts       []string
	files       []string
	pairs       []cliflag.NamedCertKey
	claims      map[string]string
	address     net.IP
	flags       *pflag.FlagSet
}

func newOptions() *options {
	o := &options{flags: pflag.NewFlagSet("test", pflag.ContinueOnError)}
	f := o.flags
	f.StringVar(&o.text, "listen", "127.0.0.1:6443", "")
	f.StringVar(&o.other, "log-level", "warn", "")
	f.BoolVar(&o.yes, "policy-watch", false, "")
	f.IntVar(&o.number, "max-seats", 0, "")
	f.Float64Var(&o.chance, "goaway-chance", 0, "")
	usage.DurationVar(f, &o.wait, "event-ttl", time.Hour, "")
	f.StringSliceVar(&o.hosts, "host", nil, "")
	f.StringArrayVar(&o.files, "key-file", []string{"default"}, "")
	f.Var(cliflag.NewNamedCertKeyArray(&o.pairs), "tls-sni-cert-key", "")
	f.Var(cliflag.NewMapStringStringNoSplit(&o.claims), "oidc-required-claim", "")
	f.IPVar(&o.address, "advertise-address", nil, "")
	f.String("config", "", "")
	f.Var(f.Lookup("event-ttl").Value, "ttl", "")
	_ = f.MarkDeprecated("ttl", "use --event-ttl")
	return o
}

// read reads a file after a command line and the environment.
func read(t *testing.T, text, commandLine string) (*options, error) {
	t.Helper()
	o := newOptions()
	if err := o.flags.Parse(strings.Fields(commandLine)); err != nil {
		t.Fatal(err)
	}
	if err := usage.FromEnvironment(o.flags); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "stele.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return o, configfile.Read(o.flags, path)
}

func TestKeysAreTheNamesOfFlags(t *testing.T) {
	o, err := read(t, `# a comment
listen: 0.0.0.0:6443
policy-watch: true
max-seats: 7
goaway-chance: 0.01
event-ttl: 2d
host: [a.example, "b,c.example"]
key-file: [one, two]
tls-sni-cert-key:
- a.crt,a.key:a.example,b.example
- b.crt,b.key
oidc-required-claim: [a=b=c, d=e]
advertise-address: 192.0.2.1
`, "")
	if err != nil {
		t.Fatal(err)
	}
	if o.text != "0.0.0.0:6443" || !o.yes || o.number != 7 || o.chance != 0.01 || o.wait != 48*time.Hour || o.other != "warn" ||
		!slices.Equal(o.hosts, []string{"a.example", "b,c.example"}) || !slices.Equal(o.files, []string{"one", "two"}) ||
		len(o.pairs) != 2 || o.pairs[1].KeyFile != "b.key" || len(o.claims) != 2 || o.claims["a"] != "b=c" || !o.address.Equal(net.IPv4(192, 0, 2, 1)) {
		t.Errorf("%+v", o)
	}
	if !o.flags.Changed("host") || !o.flags.Changed("listen") || o.flags.Changed("log-level") {
		t.Error("a flag in the file is not set, or another one is")
	}
}

func TestAnEmptyFileSetsNothing(t *testing.T) {
	for _, text := range []string{"", "# listen: x\n", "---\n"} {
		if o, err := read(t, text, ""); err != nil || o.text != "127.0.0.1:6443" {
			t.Errorf("%q: %v, %v", text, o.text, err)
		}
	}
}

func TestTheCommandLineOverridesTheEnvironmentAndThatTheFile(t *testing.T) {
	t.Setenv("STELE_LISTEN", "environment:1")
	t.Setenv("STELE_LOG_LEVEL", "info")
	o, err := read(t, "listen: file:1\nlog-level: debug\nmax-seats: 7\nhost: [file]\nevent-ttl: 5h\n", "--listen line:1 --host line --ttl 2h")
	if err != nil {
		t.Fatal(err)
	}
	if o.text != "line:1" || o.other != "info" || o.number != 7 || !slices.Equal(o.hosts, []string{"line"}) || o.wait != 2*time.Hour {
		t.Errorf("%+v", o)
	}
}

func TestMistakesHaveTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"\nlisen: x":                         `:2: unknown key "lisen"; did you mean listen?`,
		"log_level: x":                       `:1: unknown key "log_level"; did you mean log-level?`,
		"nothing-like-it: x":                 `:1: unknown key "nothing-like-it"; `,
		"listen: x\nlisten: y":               ":2: listen is in line 1 already",
		"listen: [x]":                        ":1: listen: want one value, not a list",
		"listen: {a: b}":                     ":1: listen: want a value, not a mapping",
		"host: {a: b}":                       ":1: host: want a value or a list, not a mapping",
		"host: [[a]]":                        ":1: host: want a list of values",
		"listen:":                            ":1: listen: there is no value",
		"policy-watch: maybe":                `:1: policy-watch: "maybe": want true or false`,
		"max-seats: 1.5":                     `:1: max-seats: "1.5": want a number`,
		"event-ttl: often":                   `:1: event-ttl: "often" is not a duration`,
		"advertise-address: x":               `:1: advertise-address: `,
		"tls-sni-cert-key: [a.crt]":          ":1: tls-sni-cert-key: \"a.crt\": expected comma separated certificate and key file paths",
		"config: x":                          ":1: config can only be given on the command line",
		"a: b: c":                            ":1: this is no YAML",
		"listen: x\nlog-level: 'y\nhost: []": ": this is no YAML",
		"- listen":                           ":1: want the names of flags",
		"listen: x\n---\nlisten: y":          ": there are several documents",
	} {
		if _, err := read(t, text, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := read(t, "a1: x\nb1: y\n", ""); err == nil || strings.Count(err.Error(), "unknown key") != 2 {
		t.Errorf("want all mistakes, not %v", err)
	}
}

func TestAMistakeIsFoundAlsoIfTheCommandLineOverridesIt(t *testing.T) {
	if _, err := read(t, "listen: [a]\n", "--listen b"); err == nil {
		t.Error("a list is accepted")
	}
}

func TestWhatIsWrittenCanBeRead(t *testing.T) {
	t.Setenv("STELE_LOG_LEVEL", "info")
	const file = "host: [a.example, \"b,c.example\"]\npolicy-watch: true\ntls-sni-cert-key: [\"a.crt,a.key:a.example,b.example\"]\noidc-required-claim: [a=b, \"c=d,e\"]\nlisten: \"true\"\n"
	o, err := read(t, file, "--max-seats 7")
	if err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	if err := configfile.Write(&written, o.flags); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# command line\nmax-seats: 7\n", "# STELE_LOG_LEVEL\nlog-level: info\n", "stele.yaml:1\nhost:\n", "\n# event-ttl: 1h\n", "\n# advertise-address: \"\"\n"} {
		if !strings.Contains(written.String(), want) {
			t.Errorf("it has no %q:\n%s", want, written.String())
		}
	}
	again, err := read(t, written.String(), "")
	if err != nil {
		t.Fatalf("%v:\n%s", err, written.String())
	}
	if !slices.Equal(again.hosts, o.hosts) || !again.yes || again.number != 7 || again.text != "true" || len(again.pairs) != 1 || len(again.pairs[0].Names) != 2 || again.claims["c"] != "d,e" {
		t.Errorf("%+v", again)
	}
}

func TestSecretsAreNotWritten(t *testing.T) {
	o, err := read(t, "listen: https://me:pass@example.com/x?a=b&token=secret\nhost: [https://credential@example.com, ssh://git@example.com]\n", "")
	if err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	if err := configfile.Write(&written, o.flags); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"pass", "=secret", "credential"} {
		if strings.Contains(written.String(), secret) {
			t.Errorf("%s is in\n%s", secret, written.String())
		}
	}
	if !strings.Contains(written.String(), "without its secret:\n# listen: https://***@example.com/x?a=b&token=***\n") || !strings.Contains(written.String(), "ssh://git@example.com") {
		t.Errorf("it says:\n%s", written.String())
	}
}
