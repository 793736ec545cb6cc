package simulation_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// withRules returns a bundle in which rules over other objects hold for plains: no two have the same a, of names another one
// that exists and is not deleted while it is named, and at most one is main.
func withRules(bundle string) string {
	return strings.NewReplacer(
		`versions: v1: #schema: {spec?: {a?: int}}`, `index: [".spec.a", ".spec.of", ".spec.main"]
			versions: v1: #schema: {spec?: {a?: int, of?: string, main?: bool}}`,
		"		rbac: {", `		admission: validate: "over-others": {
			match: {apiGroups: ["example.com"], resources: ["plains"]}
			objects: plains: {kind: "plains.example.com", version: "v1"}
			validations: unique: expression: "!has(object.spec) || !has(object.spec.a) || objects.plains.where('spec.a', object.spec.a).others().count() == 0"
			validations: of: expression: "!has(object.spec) || !has(object.spec.of) || objects.plains.get(object.spec.of).hasValue()"
			validations: main: expression: "!object.?spec.main.orValue(false) || !objects.plains.where('spec.main', true).others().exists()"
		}
		admission: validate: "in-use": {
			match: {apiGroups: ["example.com"], resources: ["plains"], operations: ["DELETE"]}
			objects: plains: {kind: "plains.example.com", version: "v1"}
			validations: unused: expression: "objects.plains.where('spec.of', oldObject.metadata.name).others().list().size() == 0"
		}
		rbac: {`).Replace(bundle)
}

// claim sends random writes that the rules over other objects allow or refuse.
func (s *simulation) claim(rng *rand.Rand) {
	const plains = "/apis/example.com/v1/plains"
	for range simSteps {
		time.Sleep(time.Duration(rng.IntN(50_000)) * time.Microsecond)
		name, spec := planetest.Pick(rng, "a", "b", "c", "d"), []string{}
		if rng.IntN(2) == 0 {
			spec = append(spec, fmt.Sprintf(`"a":%d`, rng.IntN(2)))
		}
		if rng.IntN(2) == 0 {
			spec = append(spec, fmt.Sprintf(`"of":%q`, planetest.Pick(rng, "a", "b", "c", "d")))
		}
		if rng.IntN(3) == 0 {
			spec = append(spec, `"main":true`)
		}
		content := `"spec":{` + strings.Join(spec, ",") + `}}`
		query := "?timeout=" + planetest.Pick(rng, "500ms", "2s", "10s")
		var got planetest.Answer
		switch r := s.replica(rng); rng.IntN(5) {
		case 0, 1:
			got = r.Do("POST", plains+query, `{"metadata":{"name":"`+name+`"},`+content)
		case 2, 3:
			got = r.Do("PATCH", plains+"/"+name+query, "{"+content, "Content-Type", "application/merge-patch+json")
		default:
			got = r.Do("DELETE", plains+"/"+name+query, "")
		}
		switch got.Code {
		case 200, 201:
			s.count("claimed")
		case 422:
			s.count("claim refused")
		case 404, 409, 503, 504, 507:
		default:
			s.t.Errorf("a claim: %s", got)
		}
	}
}

// plain is what the rules over other objects are about.
type plain struct {
	A    *int   `json:"a"`
	Of   string `json:"of"`
	Main bool   `json:"main"`
}

// checkRules checks that the rules over other objects held at each revision.
func (s *simulation) checkRules() {
	all := map[string]plain{}
	for _, stored := range s.written() {
		b, err := eventlog.DecodeBatch(stored.First, stored.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range b.Events {
			o := e.Meta.GetObject()
			if o.GetResource() != "plains" {
				continue
			}
			delete(all, o.GetName())
			if e.Meta.GetType() != logpb.Type_TYPE_DELETED {
				var x struct{ Spec plain }
				if err := json.Unmarshal(e.Content(logpb.Role_ROLE_OBJECT), &x); err != nil {
					s.t.Fatal(err)
				}
				all[o.GetName()] = x.Spec
			}
			s.checkPlains(e.Revision, all)
		}
	}
}

func (s *simulation) checkPlains(revision uint64, all map[string]plain) {
	by, main := map[int]string{}, ""
	for name, x := range all {
		if x.A != nil {
			if other, taken := by[*x.A]; taken {
				s.t.Errorf("P3: at revision %d both %s and %s have a = %d", revision, name, other, *x.A)
			}
			by[*x.A] = name
		}
		if x.Of != "" {
			if _, exists := all[x.Of]; !exists {
				s.t.Errorf("P3: at revision %d %s names %s, which does not exist", revision, name, x.Of)
			}
		}
		if x.Main {
			if main != "" {
				s.t.Errorf("P3: at revision %d both %s and %s are main", revision, name, main)
			}
			main = name
		}
	}
}
