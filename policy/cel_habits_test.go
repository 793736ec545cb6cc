package policy_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// Each expression is what other languages write, and the text must be in the first message about it.
func TestWhatPeopleWriteInCELSaysWhatToWrite(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/mistakes/module.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		"object.spec.storageGiB =< 5":                     "CEL has <=, and no =<",
		"object.spec.storageGiB => 5":                     "CEL has >=, and no =>",
		"object.spec.tier === 'a'":                        "CEL has ==, and no ===",
		"object.spec.tier <> 'a'":                         "CEL has !=, and no <>",
		"object.spec.owner =~ 'a'":                        "CEL has x.matches('…'), and no =~",
		"object.spec.standby?.region == 'eu'":             "CEL has a.?b",
		"object.spec.tier ?? 'a' == 'a'":                  "CEL has has(a.b) ? a.b : c",
		"len(object.spec.owner) < 5":                      "write size(x)",
		"object.spec.owner.length < 5":                    "write size(object.spec.owner)",
		"object.spec.owner.length() < 5":                  "write size(object.spec.owner)",
		"has(object.spec, 'standby')":                     "write has(object.spec.standby)",
		"has('standby')":                                  "write the path without quotes",
		"has(object.metadata.labels['a'])":                "write 'a' in object.metadata.labels",
		"object.spec.tier in ('eu', 'us')":                "write in ['eu', 'us']",
		"object.spec.tier in ('eu')":                      "write in ['eu']",
		"object.spec.tier not in ['a']":                   "write !(object.spec.tier in …)",
		"self.spec.tier == 'a'":                           "write object",
		"object.spec.tier == None":                        "write null",
		"object.spec.owner.lower() == 'a'":                "write x.lowerAscii()",
		"object.spec.owner.startswith('a')":               `did you mean "startsWith"?`,
		"if object.spec.tier == 'a' then true else false": "write condition ? a : b",
		"object.spec.tier is null":                        "compare with ==",
		"not has(object.spec.standby)":                    "CEL has &&, || and !",
		"any(object.spec.owner, x)":                       "write list.exists(x, …)",
		"request.user == 'bob'":                           "write request.userInfo.username, or .groups",
		"request.userInfo.name == 'bob'":                  "write .username",
		"user == 'bob'":                                   "write request.userInfo.username",
		"spec.tier == 'dev'":                              "write object.spec",
		"object.tier == 'dev'":                            "write .spec.tier",
		"object.spec.tier == dev":                         "a text stands in quotes: 'dev'",
		"object.spec.owner.matches('(?=a)')":              "RE2 has no lookahead",
		"object.spec.owner.matches('[a')":                 "missing closing ]: [a",
		"object.metadata.labels.exists('a')":              "'a' in object.metadata.labels",
		"object.spec.retention < duration('30d')":         "convert the text: duration(x)",
		"now() > 5":                        "CEL has no clock",
		"size(object.spec.storageGiB) > 3": "compare a number itself: x > 3",
		"quantity(object.spec.storageGiB) > quantity('5')":  "write quantity(string(x))",
		"request.operation == CREATE":                       "a text stands in quotes: 'CREATE'",
		"$.spec.tier == 'dev'":                              "write the path of a field alone",
		"{{ object.spec.tier }}":                            "write the path of a field alone",
		"object['spec']['tier'] == 'dev'":                   "write object.spec.tier",
		"object.spec.tier.equals('dev')":                    "write a == b",
		"!object.spec.tier == 'dev'":                        "write a != b",
		"object.spec.tier == 'dev' ||":                      "see that operators have values on both sides",
		"object.spec.tier == 'dev';":                        "an expression is one value, without ; at its end",
		"object.spec.tier == 'a' ? object.spec.owner != ''": "write condition ? a : b",
		"object.spec.tier == 'a' -> object.spec.owner > ''": "if a, then b is !(a) || b",
		"object.spec.tier like 'a%'":                        "x.matches('^a.*$')",
		"object.spec.owner.endsWith(@example.com)":          "a text stands in quotes",
		"1 < object.spec.replicas < 5":                      "write 1 < object.spec.replicas && object.spec.replicas < 5",
		"namespaceObject.labels.team == 'a'":                "write .metadata.labels",
		"authorizer.group('').resource('x')":                "end it with .check('VERB').allowed()",
		"variables.x == 1":                                  "declare it beside the rule",
		"params.max > 1":                                    `its fields are "maxGiB"`,
		"input.spec.tier == 'a'":                            "write object",
		"":                                                  "it is empty",
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			fsys := fstest.MapFS{}
			for _, f := range archive.Files {
				text := string(f.Data)
				if f.Name == admit {
					text = strings.Replace(text, `"object.spec.storageGiB <= params.maxGiB"`, strconv.Quote(expression), 1)
				}
				fsys[f.Name] = &fstest.MapFile{Data: []byte(text)}
			}
			source, err := bundles.ReadFS(fsys, "clusters/dev")
			if err != nil {
				t.Fatal(err)
			}
			_, diags := compile.Bundle(source)
			if len(diags) != 1 || diags[0].Pos.File != admit || diags[0].Pos.Line != 8 || !strings.Contains(diags[0].String(), want) {
				t.Errorf("want one line at %s:8 that says %q:\n%v", admit, want, diags)
			}
		})
	}
}
