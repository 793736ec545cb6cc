package main

import (
	"os"
	"testing"
)

// The rules of this repository hold for its tests.
func TestRulesOfThisRepository(t *testing.T) {
	t.Chdir("../..")
	packages, err := listPackages("./...")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := parseRules(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := checkRules(packages, rules); err != nil {
		t.Fatal(err)
	}
	runs, err := planRuns(packages, rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		t.Log(r)
	}
}
