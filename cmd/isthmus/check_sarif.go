package main

import (
	"net/url"
	"path/filepath"
	"slices"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/debug"
)

// The part of SARIF 2.1.0 (Static Analysis Results Interchange Format, OASIS) that findings need.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// sarifLevels are SARIF's words for severities.
var sarifLevels = map[string]string{"error": "error", "warning": "warning", "info": "note"}

// sarif writes findings as a SARIF log. Its rules are the codes that occur.
func sarif(list []debug.ObjectFinding) *sarifLog {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "isthmus", Version: build().Version, Rules: []sarifRule{}}}, Results: []sarifResult{}}
	index := map[string]int{}
	for _, c := range findingCodes() {
		if slices.ContainsFunc(list, func(f debug.ObjectFinding) bool { return f.Code == c.code }) {
			index[c.code] = len(run.Tool.Driver.Rules)
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{c.code, sarifText{c.means}})
		}
	}
	for _, f := range list {
		text := f.Message
		if f.Field != "" {
			text = f.Field + ": " + text
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: f.Code, RuleIndex: index[f.Code], Level: sarifLevels[f.Severity], Message: sarifText{text}, Locations: sarifLocations(f),
		})
	}
	return &sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

func sarifLocations(f debug.ObjectFinding) []sarifLocation {
	var l sarifLocation
	if f.File != "" {
		l.Physical = &sarifPhysical{Artifact: sarifArtifact{(&url.URL{Path: filepath.ToSlash(f.File)}).String()}}
		if f.Line > 0 {
			l.Physical.Region = &sarifRegion{f.Line}
		}
	}
	if o := objectText(f); o != "" {
		l.Logical = []sarifLogical{{Name: f.Cluster + "/" + o, Kind: "object"}}
	}
	if l.Physical == nil && l.Logical == nil {
		return nil
	}
	return []sarifLocation{l}
}
