// Package wording has the words that messages about a bundle share: the nearest name to a misspelt one, lists of what is
// allowed, and descriptions of bounds.
package wording

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

func At(position string) string {
	if position == "" {
		return ""
	}
	return " (" + position + ")"
}

func Unquoted(text string) string {
	if s, err := strconv.Unquote(text); err == nil {
		return s
	}
	return text
}

// Nearest returns the candidate that a misspelled name is most likely meant to be, or
// "" if none is near: of the letters in the words that differ, regardless of case, one
// in three may be wrong. Of several that are equally near it is the first in the
// alphabet.
func Nearest(name string, candidates []string) string {
	found, least := "", 0
	for _, c := range candidates {
		if c == "" || c == name {
			continue
		}
		a, b := difference(strings.ToLower(name), strings.ToLower(c))
		d := Distance(a, b)
		if d > max(len(a), len(b))/3 {
			continue
		}
		if found == "" || cmp.Or(cmp.Compare(d, least), cmp.Compare(c, found)) < 0 {
			found, least = c, d
		}
	}
	return found
}

// difference is two names without the words that both begin with, or end with: it is
// "scale" and "status" of "widgets/scale" and "widgets/status".
func difference(a, b string) (string, string) {
	const separators = "/:."
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	i = strings.LastIndexAny(a[:i], separators) + 1
	a, b = a[i:], b[i:]
	i = 0
	for i < min(len(a), len(b)) && a[len(a)-1-i] == b[len(b)-1-i] {
		i++
	}
	if j := strings.IndexAny(a[len(a)-i:], separators); j >= 0 {
		i -= j
		a, b = a[:len(a)-i], b[:len(b)-i]
	}
	return a, b
}

// distance counts the letters to insert, remove, replace, or swap with the next one to
// make b of a: the distance of Damerau and Levenshtein, each letter changed once.
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			changed := 1
			if x[i] == y[j] {
				changed = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+changed)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// didYouMean is the hint that goes with a wrong name: the nearest right one, else what
// there is to choose from.
func DidYouMean(name string, candidates []string, otherwise string) string {
	if near := Nearest(name, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(candidates) == 0 || otherwise == "" {
		return ""
	}
	return otherwise + " " + Enumerate(Quoted(candidates))
}

// maxEnumerated is how many of a long list are shown.
const maxEnumerated = 8

// enumerate lists words; of many only the first.
func Enumerate(words []string) string {
	if n := len(words) - maxEnumerated; n > 1 {
		return strings.Join(words[:maxEnumerated], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(words, ", ")
}

func Quoted(words []string) []string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return quoted
}

func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
