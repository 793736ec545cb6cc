package planning

import (
	"regexp"
	"strings"

	"stele.dev/stele/policy/plan"
)

// shortNames are the plurals of kinds, by plural.group. They are those of custom kinds of a plan whose plural is of no other kind in it.
type shortNames map[string]string

func shortNamesOf(findings []plan.Finding) shortNames {
	kinds := map[string]string{} // by plural; "" if several kinds have it
	for i := range findings {
		kind := findings[i].Kind
		plural, _, _ := strings.Cut(kind, ".")
		if other, known := kinds[plural]; known && other != kind {
			kind = ""
		}
		kinds[plural] = kind
	}
	short := shortNames{}
	for plural, kind := range kinds {
		if _, group, _ := strings.Cut(kind, "."); strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".stele.dev") {
			short[kind] = plural
		}
	}
	return short
}

// kind returns the short name of a kind, or else the kind.
func (s shortNames) kind(name string) string {
	if short, is := s[name]; is {
		return short
	}
	return name
}

// qualified matches what could be a resource of a custom kind in a sentence: plural.group or plural/subresource.group.
var qualified = regexp.MustCompile(`[a-z0-9-]+(?:/[a-z0-9*-]+)?(?:\.[a-z0-9-]+)+`)

// in shortens the resources in a sentence. Names of subjects stay as they are.
func (s shortNames) in(text string) string {
	if len(s) == 0 {
		return text
	}
	sentence := words.FindAllString(text, -1)
	for i, word := range sentence {
		if i > 0 && subjects[sentence[i-1]] || strings.HasPrefix(word, `"`) {
			continue
		}
		bare := strings.TrimRight(word, ",;:.)")
		if qualified.FindString(bare) != bare {
			continue
		}
		resource, group, _ := strings.Cut(bare, ".")
		plural, subresource, has := strings.Cut(resource, "/")
		short, is := s[plural+"."+group]
		if !is {
			continue
		}
		if has {
			short += "/" + subresource
		}
		sentence[i] = short + word[len(bare):]
	}
	return strings.Join(sentence, " ")
}

// subjects are the words after which the name of a subject follows.
var subjects = map[string]bool{"Group": true, "User": true, "ServiceAccount": true}
