package policy_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/pluginconfig"
)

const hours = `
import "list"

#Config: {
	from!: int & >=0 & <24
	to!: int & >from & <=24
	days: *["mon"] | list.UniqueItems
	zone?: string
}
`

const pluginsOfABundle = `package p

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "p"
	plugins: hours: {
		sha256: "linux/amd64": "` + "0000000000000000000000000000000000000000000000000000000000000000" + `"
CONFIG
	}
}
`

func TestConfigurationsOfPluginsAreHeldAgainstWhatTheProgramsSay(t *testing.T) {
	for _, c := range []struct{ name, config, schema, want string }{
		{"good", "config: {from: 9, to: 17}", hours, ""},
		{"good, with what has a default", `config: {from: 9, to: 17, days: ["tue"]}`, hours, ""},
		{"out of bounds", "config: {\nfrom: 25\nto: 26\n}", hours,
			"p.cue:10: bundle.plugins.hours.config.from: invalid value 25 (out of bound <24)\np.cue:11: bundle.plugins.hours.config.to: invalid value 26 (out of bound <=24)"},
		{"two fields", "config: {from: 17, to: 9}", hours, "p.cue:9: bundle.plugins.hours.config.to: invalid value 9 (out of bound >17)"},
		{"another type", "config: {from: 9, to: 17\nzone: 1}", hours, "p.cue:10: bundle.plugins.hours.config.zone: conflicting values string and 1 (mismatched types string and int)"},
		{"an unknown field", "config: {from: 9, to: 17\nform: 9}", hours, "p.cue:10: bundle.plugins.hours.config.form: field not allowed"},
		{"a field is missing", "config: {from: 9}", hours, "p.cue:9: bundle.plugins.hours.config.to: field is required but not present"},
		{"it is missing", "", hours, "p.cue:7: bundle.plugins.hours.config.from: field is required but not present\np.cue:7: bundle.plugins.hours.config.to: field is required but not present"},
		{"none is needed", "", "#Config: {x?: int}", ""},
		{"none is taken", "config: {x: 1}", "", "p.cue:9: bundle.plugins.hours.config: the plugin takes no configuration; leave it out"},
		{"the schema has no definition", "config: {x: 1}", "Config: {}", "p.cue:9: bundle.plugins.hours.config: the plugin's schema has no #Config; this is for the plugin's author"},
		{"the schema is no CUE", "config: {x: 1}", "#Config: {", "p.cue:9: bundle.plugins.hours.config: the plugin's schema is no CUE: expected '}', found 'EOF'; this is for the plugin's author"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, err := bundles.ReadFS(fstest.MapFS{
				"cue.mod/module.cue": {Data: []byte("module: \"example.com/p\"\nlanguage: version: \"v0.17.0\"\n")},
				"p.cue":              {Data: []byte(strings.ReplaceAll(pluginsOfABundle, "CONFIG", c.config))},
			}, ".")
			if err != nil {
				t.Fatal(err)
			}
			if got := pluginconfig.Check(source, map[string]string{"hours": c.schema}).Error(); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestAFileWithAConfigurationIsHeldAgainstWhatTheProgramSays(t *testing.T) {
	for _, c := range []struct{ name, file, config, json, wrong string }{
		{"JSON", "c.json", `{"from": 9, "to": 17}`, `{"from":9,"to":17}`, ""},
		{"CUE", "c.cue", "from: 9\nto: from + 8", `{"from":9,"to":17}`, ""},
		{"out of bounds", "c.json", "{\n\"from\": 9,\n\"to\": 25}", "", "c.json:3: to: invalid value 25 (out of bound <=24)"},
		{"no JSON", "c.json", "from: 9", "", `c.json:1: invalid JSON for file "c.json": invalid character 'r' in literal false (expecting 'a')`},
		{"not concrete", "c.cue", "from: 9\nto: int", "", "c.cue:2: to: incomplete value int"},
		{"the schema itself", "c.cue", "#Config: {\n\tfrom!: int\n}", "", "c.cue:1: it is a schema, with #Config, and has no configuration; give a file with values, as they would stand in the bundle"},
		{"a field is missing", "c.cue", "from: 9", "", "c.cue:1: to: field is required but not present"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, diags := pluginconfig.Read(hours, c.file, []byte(c.config))
			if string(got) != c.json || diags.Error() != c.wrong {
				t.Errorf("got %s\n%s\nwant %s\n%s", got, diags.Error(), c.json, c.wrong)
			}
		})
	}
}
