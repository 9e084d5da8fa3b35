package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

// dropEndpoint deletes the endpoint with that IP address from the EndpointSlice
// in the folder that has it, and names the file.
func dropEndpoint(folder, ip string) (string, error) {
	return editSlice(folder, ip, func(s *discoveryv1.EndpointSlice, i int) {
		s.Endpoints = slices.Delete(s.Endpoints, i, i+1)
	})
}

// sicken sets "ready: false" on that endpoint.
func sicken(folder, ip string) (string, error) {
	return editSlice(folder, ip, func(s *discoveryv1.EndpointSlice, i int) {
		ready := false
		s.Endpoints[i].Conditions.Ready = &ready
	})
}

// editSlice edits the EndpointSlice that lists the address, as its endpoint i.
func editSlice(folder, ip string, edit func(s *discoveryv1.EndpointSlice, i int)) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		edited, found, err := editDocuments(string(text), ip, edit)
		if err != nil {
			return "", fmt.Errorf("edit %s: %w", file, err)
		}
		if found {
			return file, replaceFile(file, edited)
		}
	}
	return "", fmt.Errorf("no EndpointSlice in %s has the address %s", folder, ip)
}

const separator = "---\n"

// editDocuments leaves every other document of a YAML file as it is.
func editDocuments(text, ip string, edit func(s *discoveryv1.EndpointSlice, i int)) (edited string, found bool, err error) {
	docs := splitDocuments(text)
	for n, doc := range docs {
		s, ok := parseSlice(doc)
		if !ok {
			continue
		}
		i := slices.IndexFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return slices.Contains(e.Addresses, ip) })
		if i < 0 {
			continue
		}
		edit(s, i)
		out, err := yaml.Marshal(s)
		if err != nil {
			return "", false, err
		}
		docs[n], found = string(out), true
	}
	return strings.Join(docs, separator), found, nil
}

// parseSlice reads a document that is an EndpointSlice.
func parseSlice(doc string) (*discoveryv1.EndpointSlice, bool) {
	s := &discoveryv1.EndpointSlice{}
	if yaml.Unmarshal([]byte(doc), s) != nil || s.Kind != "EndpointSlice" {
		return nil, false
	}
	return s, true
}

// splitDocuments cuts a YAML file at its separator lines.
func splitDocuments(text string) []string {
	var docs []string
	var doc strings.Builder
	for line := range strings.Lines(text) {
		if line == separator {
			docs = append(docs, doc.String())
			doc.Reset()
			continue
		}
		doc.WriteString(line)
	}
	return append(docs, doc.String())
}

// replaceFile changes the file at once: its readers see the old content or the
// new, nothing between.
func replaceFile(file, text string) error {
	temp := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, file)
}
