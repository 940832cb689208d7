"""The loopback server answers Google's clients as the documentation of the API says."""

from __future__ import annotations

import pytest
from vertex.fixtures import serving


@pytest.fixture
def client(vertex):
    """Makes a client of a service, `JobServiceClient` and the like."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform_v1 as v1

    return lambda service: getattr(v1, service)(
        transport="rest", credentials=AnonymousCredentials(), client_options={"api_endpoint": vertex.url}
    )


@pytest.fixture
def models(vertex, client):
    """The model client, with two versions of one model and one of another."""
    service = client("ModelServiceClient")
    for name, parent in (("a", ""), ("a", f"{vertex.parent}/models/1"), ("b", "")):
        model = {"display_name": name, "labels": {"run": name}, "version_aliases": ["newest"]}
        service.upload_model(request={"parent": vertex.parent, "model": model, "parent_model": parent}).result()
    return service


def test_jobs_are_created_got_listed_by_label_over_several_pages_and_cancelled(vertex, client):
    jobs = client("JobServiceClient")
    for i in range(7):
        jobs.create_custom_job(parent=vertex.parent, custom_job={"display_name": str(i), "labels": {"odd": str(i % 2)}})
    found = list(jobs.list_custom_jobs(request={"parent": vertex.parent, "filter": 'labels.odd="1"'}))
    assert [job.display_name for job in found] == ["1", "3", "5"]
    assert vertex.requests.count("GET customJobs") == 2
    both = 'labels.odd="1" AND display_name="3"'
    assert len(list(jobs.list_custom_jobs(request={"parent": vertex.parent, "filter": both}))) == 1
    name = found[0].name
    assert jobs.get_custom_job(name=name).state.name == "JOB_STATE_PENDING"
    jobs.cancel_custom_job(name=name)
    assert jobs.get_custom_job(name=name).state.name == "JOB_STATE_CANCELLED"


def test_a_pipeline_job_has_the_id_that_it_was_given_once(vertex, client):
    from google.api_core import exceptions

    pipelines = client("PipelineServiceClient")
    request = {"parent": vertex.parent, "pipeline_job": {"display_name": "p"}, "pipeline_job_id": "training-1"}
    name = pipelines.create_pipeline_job(request=request).name
    assert name == f"{vertex.parent}/pipelineJobs/training-1"
    assert pipelines.get_pipeline_job(name=name).state.name == "PIPELINE_STATE_RUNNING"
    with pytest.raises(exceptions.Conflict):
        pipelines.create_pipeline_job(request=request)


def test_an_alias_points_at_one_version_and_the_default_one_is_never_missing(vertex, models):
    from google.api_core import exceptions

    name = f"{vertex.parent}/models/1"
    aliases = {v.version_id: list(v.version_aliases) for v in models.list_model_versions(name=name)}
    assert aliases == {"1": ["default"], "2": ["newest"]}
    assert models.get_model(name=name).version_id == "1"
    assert models.get_model(name=f"{name}@newest").version_id == "2"
    models.merge_version_aliases(name=f"{name}@2", version_aliases=["default", "-newest"])
    assert models.get_model(name=name).version_id == "2"
    assert not models.get_model(name=f"{name}@1").version_aliases
    for refused in ("-default", "2", "Upper Case"):
        with pytest.raises(exceptions.BadRequest):
            models.merge_version_aliases(name=f"{name}@2", version_aliases=[refused])


def test_models_are_listed_by_their_default_versions(vertex, models):
    listed = list(models.list_models(request={"parent": vertex.parent, "filter": 'display_name="a"'}))
    assert [(model.name, model.version_id) for model in listed] == [(f"{vertex.parent}/models/1", "1")]


@pytest.mark.parametrize(
    ("status", "method", "path", "body"),
    [
        (400, "POST", "customJobs", '{"noSuchField": 1}'),
        (400, "POST", "models:upload", '{"model": {"labels": {"run": "Upper"}}}'),
        (400, "GET", "customJobs?filter=state%3DX", ""),
        (404, "GET", "customJobs/9", ""),
        (404, "GET", "models/9", ""),
        (404, "POST", "models:upload", '{"parentModel": "projects/x/locations/y/models/9"}'),
        (501, "DELETE", "customJobs/9", ""),
    ],
)
def test_what_the_api_refuses(vertex, models, client, status, method, path, body):
    client("JobServiceClient").create_custom_job(parent=vertex.parent, custom_job={"display_name": "x"})
    code, told = vertex.answer(method, f"/v1/{vertex.parent}/{path}", body)
    assert code == status, told


def test_another_project_is_forbidden(vertex):
    assert vertex.answer("GET", "/v1/projects/other/locations/us-central1/customJobs", "")[0] == 403


def test_the_fixture_leaves_no_trace_in_the_clients_settings():
    from google.cloud import aiplatform

    before = dict(vars(aiplatform.initializer.global_config))
    with serving() as server:
        assert aiplatform.initializer.global_config.api_endpoint == server.url
    assert vars(aiplatform.initializer.global_config) == before
