// Calls com.acme.translate through generated code, and prints how that ended.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	"capd"
	"drift/translator"
)

func main() {
	client, err := capd.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	said := map[string]any{}
	value, err := translator.Translate(context.Background(), client, translator.TranslateRequest{Text: "hello"})
	var refused *capd.Refused
	switch {
	case err == nil:
		said["outcome"], said["value"] = "result", value
	case errors.As(err, &refused):
		said["outcome"], said["code"] = "refused", refused.Code
	default:
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		log.Fatal(err)
	}
}
