package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// addSecret adds a secret, and allows its host.
func (o *containerOptions) addSecret(s berth.DomainSecret) {
	o.domainSecrets = append(o.domainSecrets, s)
	if !slices.Contains(o.allow, s.Domain) {
		o.allow = append(o.allow, s.Domain)
	}
}

// checkKeys reads the values of --aws, with the access key of the environment.
func (o *containerOptions) checkKeys() error {
	for _, one := range o.aws {
		host, scope, _ := strings.Cut(one, "=")
		service, region, ok := strings.Cut(scope, ":")
		if !ok || host == "" || service == "" || region == "" {
			return badUsage("--aws %s: must be HOST=SERVICE:REGION, such as s3.eu-central-1.amazonaws.com=s3:eu-central-1", one)
		}
		s := berth.DomainSecret{Type: berth.DomainSecretAWS, Domain: host, Name: "AWS_ACCESS_KEY_ID",
			AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), Value: os.Getenv("AWS_SECRET_ACCESS_KEY"),
			SessionToken: os.Getenv("AWS_SESSION_TOKEN"), Services: strings.Split(service, "+"),
			Regions: strings.Split(region, "+")}
		if s.AccessKeyID == "" || s.Value == "" {
			return badUsage("--aws %s: the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set; "+
				"they have the access key that the container does not see", one)
		}
		o.addSecret(s)
	}
	return nil
}

// readSecrets reads the files of --secret-file.
func (o *containerOptions) readSecrets() error {
	for _, path := range o.secretFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return badUsage("--secret-file: %v", err)
		}
		if text = bytes.TrimSpace(text); !bytes.HasPrefix(text, []byte("[")) {
			text = slices.Concat([]byte("["), text, []byte("]"))
		}
		var all []berth.DomainSecret
		in := json.NewDecoder(bytes.NewReader(text))
		in.DisallowUnknownFields()
		if err := in.Decode(&all); err != nil {
			return badUsage("--secret-file %s: must be a JSON object with the fields of a domain secret, or a list of them: %v",
				path, err)
		}
		for _, s := range all {
			o.addSecret(s)
		}
	}
	return nil
}
