package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// quality is an entry of a code quality report of GitLab.
type quality struct {
	Description string          `json:"description"`
	CheckName   string          `json:"check_name"`
	Fingerprint string          `json:"fingerprint"`
	Severity    string          `json:"severity"`
	Location    qualityLocation `json:"location"`
}

type qualityLocation struct {
	Path  string       `json:"path"`
	Lines qualityLines `json:"lines"`
}

type qualityLines struct {
	Begin int `json:"begin"`
}

// gitlab returns a code quality report of GitLab.
func gitlab(reports []Report) ([]byte, error) {
	all := []quality{}
	prints := fingerprints{}
	for r := range reports {
		for i := range reports[r].Items {
			item := &reports[r].Items[i]
			all = append(all, quality{
				Description: item.text(),
				CheckName:   item.Rule,
				Fingerprint: prints.fingerprint(&reports[r], item),
				Severity:    map[Severity]string{Error: "critical", Warning: "major", Note: "info"}[item.Severity],
				Location:    qualityLocation{reports[r].place(item), qualityLines{max(1, item.Line)}},
			})
		}
	}
	return indented(all)
}

// fingerprints counts the items with the same fingerprint, since those of a report must differ.
type fingerprints map[string]int

// fingerprint returns the fingerprint of an item. It does not depend on the line, so that the item stays the same when lines
// before it are added.
func (f fingerprints) fingerprint(r *Report, i *Item) string {
	identity := []string{r.Name, i.Rule, i.ID}
	if i.ID == "" {
		identity = append(identity, i.File, i.Title, i.Message)
	}
	text := fmt.Sprintf("%q", identity)
	f[text]++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", text, f[text]))
	return hex.EncodeToString(sum[:16])
}

// The parts of SARIF 2.1.0 that are written.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string     `json:"id"`
		ShortDescription *sarifText `json:"shortDescription,omitempty"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID              string            `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
		Level               string            `json:"level"`
		Message             sarifText         `json:"message"`
		Locations           []sarifLocation   `json:"locations"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		PhysicalLocation sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		ArtifactLocation sarifArtifact `json:"artifactLocation"`
		Region           *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI       string `json:"uri"`
		URIBaseID string `json:"uriBaseId"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
)

// sarif returns a SARIF log with one run.
func sarif(reports []Report) ([]byte, error) {
	run := sarifRun{
		Tool:       sarifTool{sarifDriver{Name: "stele", InformationURI: "https://stele.dev", Rules: []sarifRule{}}},
		ColumnKind: "unicodeCodePoints", Results: []sarifResult{},
	}
	rules := map[string]int{}
	for r := range reports {
		for i := range reports[r].Items {
			item := &reports[r].Items[i]
			if _, known := rules[item.Rule]; known {
				continue
			}
			rules[item.Rule] = len(run.Tool.Driver.Rules)
			rule := sarifRule{ID: item.Rule}
			if help := reports[r].RuleHelp; help != nil && help(item.Rule) != "" {
				rule.ShortDescription = &sarifText{help(item.Rule)}
			}
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
		}
	}
	prints := fingerprints{}
	for r := range reports {
		for i := range reports[r].Items {
			item := &reports[r].Items[i]
			physical := sarifPhysical{ArtifactLocation: sarifArtifact{(&url.URL{Path: reports[r].place(item)}).EscapedPath(), "%SRCROOT%"}}
			if item.File != "" && item.Line > 0 {
				physical.Region = &sarifRegion{item.Line, item.Column}
			}
			run.Results = append(run.Results, sarifResult{
				RuleID: item.Rule, RuleIndex: rules[item.Rule], Level: string(item.Severity), Message: sarifText{item.text()},
				Locations:           []sarifLocation{{physical}},
				PartialFingerprints: map[string]string{"stele/v1": prints.fingerprint(&reports[r], item)},
			})
		}
	}
	return indented(sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

// indented returns a value as JSON, without escapes for HTML.
func indented(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(value)
	return b.Bytes(), err
}

// The elements of JUnit's XML.
type (
	testSuites struct {
		XMLName  xml.Name    `xml:"testsuites"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Suites   []testSuite `xml:"testsuite"`
	}
	testSuite struct {
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testCase `xml:"testcase"`
	}
	testCase struct {
		Name    string       `xml:"name,attr"`
		Class   string       `xml:"classname,attr"`
		File    string       `xml:"file,attr,omitempty"`
		Line    int          `xml:"line,attr,omitempty"`
		Failure *testFailure `xml:"failure"`
		Skipped *testSkipped `xml:"skipped"`
		Out     string       `xml:"system-out,omitempty"`
	}
	testFailure struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	testSkipped struct {
		Message string `xml:"message,attr"`
	}
)

// junit returns a suite for each report. A report without cases has one case for each item; errors are failures.
func junit(reports []Report) ([]byte, error) {
	var all testSuites
	for r := range reports {
		s := reports[r].suite()
		for _, c := range s.Cases {
			if c.Failure != nil {
				s.Failures++
			}
			if c.Skipped != nil {
				s.Skipped++
			}
		}
		s.Tests = len(s.Cases)
		all.Tests, all.Failures = all.Tests+s.Tests, all.Failures+s.Failures
		all.Suites = append(all.Suites, s)
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	return slices.Concat([]byte(xml.Header), text, []byte("\n")), err
}

func (r *Report) suite() testSuite {
	s := testSuite{Name: r.Name}
	for _, c := range r.Cases {
		t := testCase{Name: c.Name, Class: c.Class, File: c.File, Line: c.Line}
		if c.Failure != "" {
			message, _, _ := strings.Cut(c.Failure, "\n")
			t.Failure = &testFailure{Message: message, Text: c.Failure}
		}
		if c.Skipped != "" {
			t.Skipped = &testSkipped{c.Skipped}
		}
		s.Cases = append(s.Cases, t)
	}
	if len(r.Cases) > 0 {
		return s
	}
	for i := range r.Items {
		item := &r.Items[i]
		t := testCase{Name: strings.TrimSpace(item.Rule + " " + item.Title), Class: r.Name, File: item.File, Line: item.Line}
		switch {
		case t.Name == "":
			t.Name = item.Message
		case item.ID != "":
			t.Name += " (" + item.ID + ")"
		}
		if item.Severity == Error {
			t.Failure = &testFailure{Type: item.Rule, Message: item.Message, Text: item.text()}
		} else {
			t.Out = item.text()
		}
		s.Cases = append(s.Cases, t)
	}
	if len(s.Cases) == 0 { // some readers refuse a suite without cases
		s.Cases = []testCase{{Name: "no findings", Class: r.Name}}
	}
	return s
}
