package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

const page = "# A page\n\n```console\n$ other\n```\n\n<!-- recording: x -->\n\n```console\n$ stele undo | cat <x\n4 to create & 2 to keep\n$ true\n```\n"

func TestThePictureShowsTheBlock(t *testing.T) {
	block, err := blockOf(page)
	if err != nil {
		t.Fatal(err)
	}
	svg, err := picture(block)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`style="animation-delay: 0.00s" xml:space="preserve" class="command"><tspan class="prompt">$ </tspan>stele undo | cat &lt;x</text>`,
		`style="animation-delay: 0.35s" xml:space="preserve">4 to create &amp; 2 to keep</text>`,
		`style="animation-delay: 6.00s" xml:space="preserve" class="command"><tspan class="prompt">$ </tspan>true</text>`,
	} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
	if strings.Contains(string(svg), "other") {
		t.Error("it shows another block")
	}
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPageWithoutARecordingIsRefused(t *testing.T) {
	if _, err := blockOf("```console\n$ x\n```\n"); err == nil {
		t.Error("a block was found")
	}
	if _, err := picture([]string{"output"}); err == nil {
		t.Error("a block without a command is shown")
	}
}

func TestThePictureIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../docs/INCIDENT.md")
	if err != nil {
		t.Fatal(err)
	}
	block, err := blockOf(string(text))
	if err != nil {
		t.Fatal(err)
	}
	want, err := picture(block)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/incident.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("docs/incident.svg is not of docs/INCIDENT.md; run go generate ./docs")
	}
}
