package crd

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"stele.dev/stele/schemas"
)

// A nameRule is a rule for the name of an object: a CEL expression over x, and a message.
type nameRule struct{ expression, message string }

// nameRules translates a schema of names into rules. ok is false if the schema has rules that cannot be
// translated.
func nameRules(s *apiextensions.JSONSchemaProps) (rules []nameRule, ok bool) {
	add := func(expression, message string) { rules = append(rules, nameRule{expression, message}) }
	rest := *s
	rest.Description, rest.Title, rest.Example, rest.ExternalDocs = "", "", nil, nil
	if rest.Type == "string" {
		rest.Type = ""
	}
	if s.Pattern != "" {
		add("x.matches("+strconv.Quote(s.Pattern)+")", "must match "+s.Pattern)
	}
	if s.MinLength != nil {
		add(fmt.Sprintf("x.size() >= %d", *s.MinLength), fmt.Sprintf("must have at least %d characters", *s.MinLength))
	}
	if s.MaxLength != nil {
		add(fmt.Sprintf("x.size() <= %d", *s.MaxLength), fmt.Sprintf("must have at most %d characters", *s.MaxLength))
	}
	if len(s.Enum) > 0 {
		var quoted []string
		for _, e := range s.Enum {
			if text, isText := e.(string); isText {
				quoted = append(quoted, strconv.Quote(text))
			}
		}
		add("x in ["+strings.Join(quoted, ", ")+"]", "must be one of "+strings.Join(quoted, ", "))
	}
	if format := nameFormats[s.Format]; format != "" {
		add("!format."+format+"().validate(x).hasValue()", "must be a "+s.Format)
		rest.Format = ""
	}
	logic, ok := nameLogic(s)
	rules = append(rules, logic...)
	rest.Pattern, rest.MinLength, rest.MaxLength, rest.Enum = "", nil, nil, nil
	rest.AnyOf, rest.OneOf, rest.AllOf, rest.Not = nil, nil, nil, nil
	return rules, ok && saysNothing(&rest)
}

var nameFormats = map[string]string{"k8s-short-name": "dns1123Label", "k8s-long-name": "dns1123Subdomain", "uuid": "uuid"}

// nameLogic translates the logical operators of a schema of names.
func nameLogic(s *apiextensions.JSONSchemaProps) (rules []nameRule, ok bool) {
	all := func(of []apiextensions.JSONSchemaProps) (each []string, holds bool) {
		for i := range of {
			parts, holds := nameRules(&of[i])
			if !holds {
				return nil, false
			}
			expressions := []string{"true"}
			for _, p := range parts {
				expressions = append(expressions, p.expression)
			}
			each = append(each, "("+strings.Join(expressions, " && ")+")")
		}
		return each, true
	}
	ok = true
	for _, operator := range []struct {
		of      []apiextensions.JSONSchemaProps
		join    func([]string) string
		message string
	}{
		{s.AllOf, func(e []string) string { return strings.Join(e, " && ") }, "must validate all the schemas (allOf)"},
		{s.AnyOf, func(e []string) string { return strings.Join(e, " || ") }, "must validate at least one schema (anyOf)"},
		{s.OneOf, func(e []string) string { return "[" + strings.Join(e, ", ") + "].exists_one(one, one)" }, "must validate one and only one schema (oneOf)"},
	} {
		each, holds := all(operator.of)
		if ok = ok && holds; holds && len(each) > 0 {
			rules = append(rules, nameRule{operator.join(each), operator.message})
		}
	}
	if s.Not != nil {
		each, holds := all([]apiextensions.JSONSchemaProps{*s.Not})
		if ok = ok && holds; holds {
			rules = append(rules, nameRule{"!" + each[0], "must not validate the schema (not)"})
		}
	}
	return rules, ok
}

// names translates the schema of metadata.name into rules.
func (t *translator) names(s apiextensions.JSONSchemaProps, p position) {
	for _, name := range []string{"name", "generateName"} {
		of, ok := s.Properties[name]
		if !ok {
			continue
		}
		at := p.descend("properties", name)
		rules, ok := nameRules(&of)
		if !ok {
			t.refuse(at.at, "what it says of "+name+" is not enforced", "leave it out")
		}
		for _, r := range rules {
			pos := t.locate(at.at)
			part := "self.metadata." + name
			t.rules = append(t.rules, schemas.Rule{
				Name: fmt.Sprintf("metadata.%s#%d", name, len(t.rules)), Rule: "!has(" + part + ") || [" + part + "].all(x, " + r.expression + ")",
				Message: "metadata." + name + " " + r.message, FieldPath: ".metadata." + name, Source: pos, RuleSource: pos, PathSource: pos, MessageSource: pos,
			})
		}
	}
	t.nothingElse(s, p, func(x *apiextensions.JSONSchemaProps) { x.Type, x.Properties = "", nil })
}
